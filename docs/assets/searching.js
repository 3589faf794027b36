// The theme takes each word of a query for the beginning of words: "a" finds all that begins with
// a, and a pasted message has many. What is short or everywhere does not reach the search.
const EVERYWHERE = new Set(
  (
    "an and are as at be because but by can do does for from get got had has have how if in into " +
    "is it its me must my no not of on or our should so than that the their them then there these " +
    "they this to use using was we were what when where which while who why will with you your"
  ).split(" "),
);
const QUERY = 2; // the theme's number for it
const { postMessage } = Worker.prototype;

Worker.prototype.postMessage = function (message, ...others) {
  const kept = (word) => word.length > 1 && !EVERYWHERE.has(word.toLowerCase());
  const words = message?.type === QUERY ? message.data.split(/\s+/).filter(kept) : [];
  const asked = words.length ? { ...message, data: words.join(" ") } : message;
  return postMessage.call(this, asked, ...others);
};
