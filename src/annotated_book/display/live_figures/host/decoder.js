// The storyteller of "A little world", in the page: the same weights, the same numbers.
//
// Each function computes the whole text anew, as the chapter does: with one word at a time and a
// cache, a wrong merge would be no mistake.

/** Take the weights out of their file: vectors as float32, the rows of a matrix as int8 with a scale. */
export function unpack(buffer, shapes) {
  const weights = {};
  let at = 0;
  for (const [name, rows, columns] of shapes) {
    const floats = new Float32Array(buffer.slice(at, at + 4 * rows));
    at += 4 * rows;
    if (!columns) {
      weights[name] = floats;
      continue;
    }
    const small = new Int8Array(buffer, at, rows * columns);
    weights[name] = Float32Array.from(small, (x, i) => x * floats[Math.floor(i / columns)]);
    at += rows * columns;
  }
  if (at !== buffer.byteLength) throw new Error(`${buffer.byteLength} bytes instead of ${at}`);
  return weights;
}

/** Multiply each row by a matrix, and add a bias. */
function linear(x, matrix, bias) {
  const [inner, outer] = [x[0].length, bias.length];
  return x.map((row) => {
    const y = Float32Array.from(bias);
    for (let i = 0; i < outer; i++)
      for (let j = 0; j < inner; j++) y[i] += matrix[i * inner + j] * row[j];
    return y;
  });
}

function norm(x, scale, shift) {
  return x.map((row) => {
    const mean = row.reduce((a, b) => a + b) / row.length;
    const variance = row.reduce((a, b) => a + (b - mean) ** 2, 0) / row.length;
    return row.map(
      (value, i) => ((value - mean) / Math.sqrt(variance + 1e-5)) * scale[i] + shift[i],
    );
  });
}

export function softmax(row) {
  const most = Math.max(...row);
  const raised = Array.from(row, (x) => Math.exp(x - most));
  const sum = raised.reduce((a, b) => a + b);
  return raised.map((x) => x / sum);
}

const add = (x, y) => x.map((row, i) => row.map((value, j) => value + y[i][j]));

/** Put the heads' results back side by side; the wrong way reads them off as they lie. */
export function merge(heads, wrong) {
  const [h, n, d] = [heads.length, heads[0].length, heads[0][0].length];
  return Array.from({ length: n }, (_, i) =>
    Float32Array.from({ length: h * d }, (_, j) => {
      if (!wrong) return heads[Math.floor(j / d)][i][j % d];
      const place = i * h * d + j; // in (h, n, d), read in a row
      return heads[Math.floor(place / (n * d))][Math.floor(place / d) % n][place % d];
    }),
  );
}

function attend(x, w, name, h, silent, wrong) {
  const e = x[0].length;
  const d = e / h;
  const packed = linear(x, w[`${name}.in_proj_weight`], w[`${name}.in_proj_bias`]);
  const weights = [];
  const heads = [];
  for (let head = 0; head < h; head++) {
    const from = head * d;
    const rows = packed.map((row, i) => {
      const scores = packed.slice(0, i + 1).map((other) => {
        let score = 0;
        for (let f = from; f < from + d; f++) score += row[f] * other[e + f];
        return score / Math.sqrt(d);
      });
      return softmax(scores);
    });
    weights.push(rows);
    heads.push(
      rows.map((row) =>
        Float32Array.from({ length: d }, (_, f) =>
          row.reduce((sum, weight, j) => sum + weight * packed[j][2 * e + from + f], 0),
        ),
      ),
    );
    const mean = silent[head];
    if (mean) heads[head] = heads[head].map(() => Float32Array.from(mean));
  }
  const merged = merge(heads, wrong);
  return [linear(merged, w[`${name}.out_proj.weight`], w[`${name}.out_proj.bias`]), weights];
}

/**
 * Read a text, and say what may come next.
 *
 * @param model weights, heads (or those of each layer), layers, and means: of each layer, of each head, what stands in for
 *   it when it is silent
 * @param ids numbers of words
 * @param silent [layer, head] of the heads that are silenced
 * @param wrong whether the heads are merged by a reshape without a transpose
 * @returns logits for each place, and for each layer and head the weights, a row per place
 */
export function read(model, ids, silent = [], wrong = false) {
  const { weights: w, heads, layers, means } = model;
  const e = w["layers.norm.weight"].length;
  let x = ids.map((id, place) =>
    w["embed.weight"].slice(id * e, (id + 1) * e).map((value, i) => {
      const angle = place / 10000 ** ((i - (i % 2)) / e);
      return value * Math.sqrt(e) + (i % 2 ? Math.cos(angle) : Math.sin(angle));
    }),
  );
  const weights = [];
  for (let layer = 0; layer < layers; layer++) {
    const name = `layers.layers.${layer}`;
    const own = heads[layer] ?? heads;
    const off = Array.from({ length: own }, (_, head) =>
      silent.some(([l, k]) => l === layer && k === head) ? means[layer][head] : null,
    );
    const part = (which) => [w[`${name}.${which}.weight`], w[`${name}.${which}.bias`]];
    const [added, rows] = attend(
      norm(x, ...part("norm1")),
      w,
      `${name}.self_attn`,
      own,
      off,
      wrong,
    );
    weights.push(rows);
    x = add(x, added);
    const wide = linear(norm(x, ...part("norm2")), ...part("linear1"));
    x = add(
      x,
      linear(
        wide.map((row) => row.map((value) => Math.max(value, 0))),
        ...part("linear2"),
      ),
    );
  }
  const last = norm(x, w["layers.norm.weight"], w["layers.norm.bias"]);
  return { logits: linear(last, w["project.weight"], w["project.bias"]), weights };
}

/** Give the words and their chances at a temperature, the likeliest first; 0 counts as 1. */
export function likeliest(logits, words, temperature) {
  const shares = softmax(logits.map((logit) => logit / (temperature || 1)));
  return shares.map((share, i) => [words[i], share]).sort((a, b) => b[1] - a[1]);
}

/** Draw a word by its chance, given a number from 0 to 1; 0 draws the first. */
export function drawn(shares, chance) {
  for (const [word, share] of shares) {
    if (chance <= share) return word;
    chance -= share;
  }
  return shares[0][0];
}
