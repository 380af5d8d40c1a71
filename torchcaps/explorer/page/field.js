// Where the dots of the routing field are and how large they can be. Pure geometry, in pixels of the model's picture.

/** @typedef {import("./api.js").Part} Part */
/** @typedef {{x: number, y: number}} Point */

const GOLDEN = Math.PI * (3 - Math.sqrt(5));
const BORDER = 2 / 28; // of the picture, that need not be shown
const FILLED = 1.1; // of a cell's disc, if all its dots were of the largest size; few are
export const MOST_DOTS = 2000;

/** The parts that are drawn: all, or of very many the most active. @param {Part[]} parts @returns {number[]} */
export function drawnParts(parts) {
  const all = parts.map((_, i) => i);
  if (parts.length <= MOST_DOTS) return all;
  return all.sort((a, b) => parts[b].activation - parts[a].activation).slice(0, MOST_DOTS).sort((a, b) => a - b);
}

/** The smallest gap between different values. */
function gap(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  let smallest = Infinity;
  for (let i = 1; i < sorted.length; i++) smallest = Math.min(smallest, sorted[i] - sorted[i - 1]);
  return smallest;
}

/**
 * @param {Part[]} parts
 * @param {{height: number, width: number}} picture
 */
export function arrange(parts, { height, width }) {
  const cells = new Map();
  parts.forEach((part, i) => {
    const key = `${part.row},${part.column}`;
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(i);
  });
  const spacing = Math.min(gap(parts.map((p) => p.row)), gap(parts.map((p) => p.column)), Math.min(height, width) / 2);
  const most = Math.max(1, ...[...cells.values()].map((cell) => cell.length));
  const disc = spacing * 0.48;
  const largest = most === 1 ? disc * 0.9 : disc * Math.sqrt(FILLED / most);
  /** @type {Point[]} */
  const points = new Array(parts.length);
  for (const cell of cells.values()) {
    cell.sort((a, b) => parts[a].type - parts[b].type);
    cell.forEach((index, k) => {
      // like the seeds of a sunflower: evenly spread however many there are
      const distance = cell.length === 1 ? 0 : (disc - largest * 0.4) * Math.sqrt((k + 0.5) / (cell.length - 0.5));
      const { row, column } = parts[index];
      points[index] = {
        x: column + 0.5 + distance * Math.cos(k * GOLDEN),
        y: row + 0.5 + distance * Math.sin(k * GOLDEN),
      };
    });
  }
  return { points, largest, spacing, view: view(points, spacing, { height, width }) };
}

/** The part of the picture that is shown: all dots, and at least the middle, where things are. */
function view(points, spacing, { height, width }) {
  const xs = points.map((p) => p.x);
  const ys = points.map((p) => p.y);
  const left = Math.min(width * BORDER, Math.min(...xs) - spacing * 0.5);
  const right = Math.max(width * (1 - BORDER), Math.max(...xs) + spacing * 0.5);
  const top = Math.min(height * BORDER, Math.min(...ys) - spacing * 0.5);
  const bottom = Math.max(height * (1 - BORDER), Math.max(...ys) + spacing * 0.5);
  return { x: left, y: top, width: right - left, height: bottom - top };
}

/** @returns {number} the nearest point not farther than `reach`, or -1 */
export function nearest(points, x, y, reach) {
  let best = -1;
  let least = reach;
  points.forEach((point, i) => {
    const distance = Math.hypot(point.x - x, point.y - y);
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

/** The next dot in the direction of an arrow key: near, and not far off to the side. */
export function neighbour(points, from, [right, down]) {
  const start = points[from];
  let best = from;
  let least = Infinity;
  points.forEach((point, i) => {
    const along = (point.x - start.x) * right + (point.y - start.y) * down;
    const aside = Math.abs((point.x - start.x) * down) + Math.abs((point.y - start.y) * right);
    if (i === from || along < 1e-6) return;
    const cost = along + 2.5 * aside;
    if (cost < least) [best, least] = [i, cost];
  });
  return best;
}

/** The class with the largest coupling, and how much it is above an equal share (0 if all are the same). */
export function largestShare(coupling) {
  let label = 0;
  for (let k = 1; k < coupling.length; k++) if (coupling[k] > coupling[label]) label = k;
  const above = coupling[label] - 1 / coupling.length;
  return { label, share: coupling[label], above: above > 1e-4 ? above : 0 };
}

/**
 * What a dot looks like.
 * @param {Part} part
 * @param {number[]} coupling of it at this step
 * @param {{measure: "share"|"above", parent: ?number, most: {share: number, above: number}}} how
 * @returns {{size: number, label: ?number, decided: number}} area and decidedness from 0 to 1
 */
export function appearance(part, coupling, { measure, parent, most }) {
  const top = largestShare(coupling);
  const label = parent ?? top.label;
  const share = coupling[label];
  const above = parent === null ? top.above : Math.max(0, share - 1 / coupling.length);
  const sent = measure === "above" ? above / most.above : share / most.share;
  // 0 if all classes get the same, 1 if one gets everything; the root, as most parts of a trained network split
  const decided = Math.sqrt(above / (1 - 1 / coupling.length));
  return { size: Math.min(1, part.activation * sent), label: above > 0 ? label : null, decided };
}

/** The largest amounts over all steps, that the sizes are relative to. */
export function largestSent({ parts, steps }) {
  const most = { share: 1e-9, above: 1e-9 };
  for (const { coupling } of steps) {
    coupling.forEach((row, i) => {
      const top = largestShare(row);
      most.share = Math.max(most.share, parts[i].activation * top.share);
      most.above = Math.max(most.above, parts[i].activation * top.above);
    });
  }
  return most;
}
