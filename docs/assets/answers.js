// Fields for the exercises that ask for numbers: the table of the exercise, which the page carries, judges.

const multiply = (text) =>
  text.split("*").reduce((product, x) => product * (x.trim() ? Number(x) : NaN), 1);

/** Read a number, a product, a fraction or a number with a comma; null if it is none of them. */
function read(text) {
  const [top, bottom = "1", ...more] = text.replaceAll("−", "-").replaceAll(",", ".").split("/");
  const number = more.length ? NaN : multiply(top) / multiply(bottom);
  return Number.isFinite(number) ? number : null;
}

function verdict(numbers, labels, { right, wrong, praise, close }) {
  const near = (x, y) => Math.abs(x - y) <= close * Math.max(1, Math.abs(y));
  const missing = numbers.filter((number) => number === null).length;
  if (missing)
    return `not yet, ${missing} of ${numbers.length} ${missing === 1 ? "is" : "are"} no number.`;
  const same = (answer) => answer.every((number, place) => near(numbers[place], number));
  if (same(right)) return `✓ ${praise}`;
  const [sentence] = wrong.find(([, answers]) => answers.some(same)) ?? [];
  const off = labels.filter((_, place) => !near(numbers[place], right[place]));
  return `✗ ${sentence ?? `not right yet: ${off.join("; ")}.`}`.replace(/\*(\w+)\*/g, "$1");
}

for (const form of document.querySelectorAll(".aa-answer")) {
  const inputs = [...form.querySelectorAll("input")];
  const labels = [...form.querySelectorAll("label")].map((label) => label.textContent);
  const said = form.querySelector("output");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    said.textContent = verdict(
      inputs.map(({ value }) => read(value)),
      labels,
      JSON.parse(form.dataset.table),
    );
  });
  form.addEventListener("input", () => (said.textContent = ""));
  form.classList.add("aa-works");
}
