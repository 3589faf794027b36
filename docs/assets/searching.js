// The theme takes each word of a query for the beginning of words: "a" finds all that begins with
// a, and a pasted message has many. What is short or everywhere does not reach the search, nor do
// parts of a name, q_proj, and the signs of a formula, which it would take for orders: QK^T, -inf.
const EVERYWHERE = new Set(
  (
    "an and are as at be because but by can do does for from get got had has have how if in into " +
    "is it its me must my no not of on or our should so than that the their them then there these " +
    "they this to use using was we were what when where which while who why will with you your"
  ).split(" "),
);
const QUERY = 2; // the theme's number for it
const OPERATORS = /^-+|[\s~^+*/_]+-*|\((?!s\))|\)/;
const LETTERS = { Q: "query", K: "key", V: "value" };
const { postMessage } = Worker.prototype;

Worker.prototype.postMessage = function (message, ...others) {
  if (message?.type !== QUERY) return postMessage.call(this, message, ...others);
  const kept = (word) => word.length > 1 && !EVERYWHERE.has(word.toLowerCase());
  const whole = message.data.normalize("NFKC").replace(/\bQ[\s@·*]*K\W*T\b/g, "QKT");
  const named = whole.replace(/\b[QKV]\b/g, (letter) => LETTERS[letter]);
  const words = named.split(OPERATORS).filter(Boolean);
  const sought = words.some(kept) ? words.filter(kept) : words;
  return postMessage.call(this, { ...message, data: sought.join(" ") }, ...others);
};
