// Fields for the exercises that ask for numbers: the table of the exercise, which the page carries, judges.

const NAMED = {
  e: Math.E,
  pi: Math.PI,
  log: Math.log,
  ln: Math.log,
  sqrt: Math.sqrt,
  exp: Math.exp,
};

/** Read a number or a formula, such as −0,5 or math.log(8) / 4; null if it is neither. */
function read(text) {
  const plain = text.toLowerCase().replaceAll("−", "-").replaceAll(",", ".");
  const rest = plain.replace(/\b(math|np|torch)\./g, "").replaceAll("**", "^");
  const parts = rest.match(/(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[a-z]+|\S/g) ?? [];
  const next = (...signs) => signs.includes(parts[0]) && parts.shift();
  const closed = (value) => (next(")") ? value : NaN);
  const one = () => {
    if (next("-")) return -power();
    if (next("(")) return closed(sum());
    const part = parts.shift() ?? "";
    const named = Object.hasOwn(NAMED, part) ? NAMED[part] : Number(part || NaN);
    return typeof named === "number" ? named : named(one());
  };
  const power = (base = one()) => (next("^") ? base ** power() : base);
  const product = (value = power(), sign = next("*", "/")) =>
    sign ? product(sign === "*" ? value * power() : value / power()) : value;
  const sum = (value = product(), sign = next("+", "-")) =>
    sign ? sum(sign === "+" ? value + product() : value - product()) : value;
  const number = sum();
  return parts.length || !Number.isFinite(number) ? null : number;
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
