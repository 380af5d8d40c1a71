// The small pieces of the routing panel: ribbons from a part to the classes, sparklines, the table of a part.

import { largestShare } from "./field.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDEST = 16; // pixels of a ribbon that carries everything
const TOP = 5;
const element = (id) => document.getElementById(id);

export function svg(name, attributes = {}) {
  const node = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

/** Ribbons as wide as the couplings, from a dot to the bars of the classes; none if there is no dot. */
export function drawRibbons(overlay, stage, dot, couplings, parents) {
  if (!dot || !couplings) {
    overlay.replaceChildren();
    return;
  }
  const frame = stage.getBoundingClientRect();
  const start = dot.getBoundingClientRect();
  const x = start.left + start.width / 2 - frame.left;
  const y = start.top + start.height / 2 - frame.top;
  const largest = Math.max(...couplings);
  const paths = parents.rows.map(({ button }) => {
    const label = Number(button.dataset.class);
    const box = button.getBoundingClientRect();
    const endX = box.left - frame.left;
    const endY = box.top + box.height / 2 - frame.top;
    const bend = x + (endX - x) * 0.55;
    const path = svg("path", { d: `M${x} ${y}C${bend} ${y} ${bend} ${endY} ${endX} ${endY}` });
    path.style.stroke = `var(--class-${label})`;
    path.style.strokeWidth = `${Math.max(0.6, couplings[label] * WIDEST)}px`;
    path.style.opacity = 0.25 + 0.65 * (couplings[label] / largest) ** 2;
    return path;
  });
  overlay.replaceChildren(...paths);
}

/**
 * A line over the steps with the current one marked, in its own range.
 * @param {{span: number, top?: ?number}} how the least range, so that a rounding error is not a mountain; and where
 *   dashes are, if anywhere
 */
function drawSpark(line, values, current, { span, top = null }) {
  const [width, height, edge] = [64, 22, 4];
  const [least, most] = [Math.min(...values), Math.max(top ?? -Infinity, ...values)];
  const range = Math.max(span, most - least);
  const low = (least + most - range) / 2;
  const x = (i) => (values.length === 1 ? width / 2 : edge + (i * (width - 2 * edge)) / (values.length - 1));
  const y = (value) => height - edge - ((value - low) / range) * (height - 2 * edge);
  line.setAttribute("viewBox", `0 0 ${width} ${height}`);
  line.replaceChildren(
    ...(top === null ? [] : [svg("line", { x1: 0, x2: width, y1: y(top), y2: y(top), class: "top" })]),
    svg("polyline", { points: values.map((value, i) => `${x(i)},${y(value)}`).join(" ") }),
    svg("circle", { cx: x(current), cy: y(values[current]), r: 3 }),
  );
}

/** Entropy and agreement of a step, and how they went. */
export function showNumbers({ steps, uniform_entropy: uniform }, current, { label, value }, names) {
  const step = steps[current - 1];
  element("entropy").textContent = `${step.entropy.toFixed(3)} of ${uniform.toFixed(3)}`;
  element("agreement").textContent = value.toFixed(2);
  element("agreement-of").textContent = `of the votes for ${names[label]}`;
  element("agreement-all").textContent = `${step.agreement.toFixed(2)} over all classes`;
  const entropies = steps.map((each) => each.entropy);
  const agreements = steps.map((each) => each.agreements[label]);
  drawSpark(element("entropy-line"), entropies, current - 1, { span: 0.02 * uniform, top: uniform });
  drawSpark(element("agreement-line"), agreements, current - 1, { span: 0.05 });
}

export function clearNumbers() {
  element("entropy").textContent = element("agreement").textContent = "–";
  element("agreement-of").textContent = "votes with wholes";
  element("agreement-all").textContent = "";
  for (const id of ["entropy-line", "agreement-line"]) element(id).replaceChildren();
}

function cell(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

/** Where does it go? A table for a part, a sentence for a class, or what could be done. */
export function fillTable(box, couplings, part, senders, names) {
  if (!couplings) {
    box.replaceChildren(cell("p", senders ?? "Point at a dot: where does it go? Point at a class: who sends to it?"));
    return;
  }
  const order = couplings.map((_, k) => k).sort((a, b) => couplings[b] - couplings[a]).slice(0, TOP);
  const table = document.createElement("table");
  const caption = cell("caption", "Where does it go?");
  const detail = cell("span", ` type ${part.type + 1}, activation ${part.activation.toFixed(2)}`);
  detail.className = "soft";
  caption.append(detail);
  const body = document.createElement("tbody");
  for (const label of order) {
    const row = document.createElement("tr");
    const head = cell("th", names[label]);
    head.scope = "row";
    row.style.setProperty("--colour", `var(--class-${label})`);
    row.append(head, cell("td", `${(couplings[label] * 100).toFixed(couplings[label] < 0.2 ? 1 : 0)} %`));
    body.append(row);
  }
  table.append(caption, body);
  box.replaceChildren(table);
}

/** Who sends to a class, in a sentence. */
export function senders({ coupling }, label, names) {
  const more = coupling.filter((row) => row[label] > 1 / row.length + 1e-4).length;
  return `${more} of ${coupling.length} parts send more than an equal share to class ${names[label]}.`;
}

/** How much of the picture a part sees. */
export function seenBy([height, width], picture) {
  const all = `${picture.width}×${picture.height} pixels`;
  return height >= picture.height && width >= picture.width ? `all ${all}` : `${width}×${height} of the ${all}`;
}

/** A step in a sentence, for those who do not see the dots. */
export function summary({ steps, uniform_entropy: uniform }, current, names) {
  const { coupling, entropy } = steps[current - 1];
  const tally = new Map();
  for (const { label, above } of coupling.map(largestShare)) {
    if (above) tally.set(label, (tally.get(label) ?? 0) + 1);
  }
  const [best] = [...tally].sort((a, b) => b[1] - a[1]);
  const where = best
    ? `${best[1]} of ${coupling.length} parts send most to ${names[best[0]]}`
    : "every part sends the same to every class";
  return `step ${current} of ${steps.length}: ${where}; entropy ${entropy.toFixed(2)} of ${uniform.toFixed(2)}`;
}
