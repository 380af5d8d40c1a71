// The picture that is being made: one layer, or one for each object, with undo. Layers are never changed in place, so a
// step back is only the layers as they were.

import { emptyLayer, isEmpty, layerPixels, movedTo, picturePixels, centreOfMass, shifted } from "./strokes.js";

/** @typedef {import("./strokes.js").Layer} Layer */

const LONGEST_HISTORY = 60;
const CLOSEST = 0.004; // points nearer than this to the last one say nothing new

export class Sketch extends EventTarget {
  /** @param {import("./api.js").Model} model */
  constructor(model) {
    super();
    this.model = model;
    /** @type {Layer[]} */
    this.layers = Array.from({ length: Math.max(1, model.objects) }, emptyLayer);
    this.active = 0;
    this.history = [];
    this.temporary = false;
    this.labels = null;
  }

  get empty() {
    return this.layers.every(isEmpty);
  }

  pixels() {
    return picturePixels(this.layers, this.model);
  }

  layerPixels(index) {
    return layerPixels(this.layers[index], this.model);
  }

  /** @param {boolean} final not in the middle of a stroke @param {number} time of the event behind it */
  #changed(final, time = performance.now()) {
    this.dispatchEvent(new CustomEvent("change", { detail: { final, time } }));
  }

  #remember() {
    this.history.push({ layers: this.layers, labels: this.labels });
    if (this.history.length > LONGEST_HISTORY) this.history.shift();
  }

  #setLayer(index, layer) {
    this.layers = this.layers.map((old, i) => (i === index ? layer : old));
  }

  activate(index) {
    if (index >= this.layers.length || index === this.active) return;
    this.active = index;
    this.dispatchEvent(new Event("layer"));
  }

  begin(x, y, erase, time) {
    this.#remember();
    // The picture that the page opened with is there to be looked at; the first line starts a new one.
    if (this.temporary && !erase) this.layers = this.layers.map(emptyLayer);
    this.temporary = false;
    this.labels = null;
    const layer = this.layers[this.active];
    this.#setLayer(this.active, { ...layer, strokes: [...layer.strokes, { erase, points: [x, y] }] });
    this.#changed(false, time);
  }

  /** @param {number[]} points x and y in turn */
  extend(points, time) {
    const layer = this.layers[this.active];
    const stroke = layer.strokes.at(-1);
    const grown = stroke.points.slice();
    for (let i = 0; i < points.length; i += 2) {
      const far = Math.hypot(points[i] - grown.at(-2), points[i + 1] - grown.at(-1)) > CLOSEST;
      if (far) grown.push(points[i], points[i + 1]);
    }
    if (grown.length === stroke.points.length) return;
    this.#setLayer(this.active, { ...layer, strokes: [...layer.strokes.slice(0, -1), { ...stroke, points: grown }] });
    this.#changed(false, time);
  }

  end(time) {
    this.#changed(true, time);
  }

  clear(time) {
    if (this.empty) return;
    this.#remember();
    this.layers = this.layers.map(emptyLayer);
    this.temporary = false;
    this.labels = null;
    if (this.active !== 0) this.activate(0);
    this.#changed(true, time);
  }

  undo(time) {
    const before = this.history.pop();
    if (!before) return;
    Object.assign(this, before, { temporary: false });
    this.#changed(true, time);
  }

  /** Shows these layers: of a test picture, an upload or a link. */
  load(layers, { labels = null, temporary = false, time } = {}) {
    if (!this.empty) this.#remember();
    this.layers = Array.from({ length: this.layers.length }, (_, i) => layers[i] ?? emptyLayer());
    this.labels = labels;
    this.temporary = temporary;
    this.#changed(true, time);
  }

  /** Puts a digit on the active layer and goes on to the next one. @param {{x: number, y: number}} [at] 0 to 1 */
  put(pixels, at, time) {
    this.#remember();
    if (this.temporary) this.layers = this.layers.map(emptyLayer);
    this.temporary = false;
    this.labels = null;
    const { picture } = this.model;
    const base = at ? movedTo(pixels, picture, at.x * picture.width, at.y * picture.height) : pixels;
    this.#setLayer(this.active, { base, strokes: [] });
    this.activate((this.active + 1) % this.layers.length);
    this.#changed(true, time);
  }

  /** Starts a movement of the active layer, which `moveBy` then does as a whole: one step of undo. */
  beginMove() {
    this.#remember();
    this.temporary = false;
    this.moved = this.layers[this.active];
  }

  /** @param {number} right in pixels of the model's picture, since the movement began */
  moveBy(right, down, final, time) {
    const { picture } = this.model;
    const { base, strokes } = this.moved;
    const [x, y] = base ? this.#allowed(base, Math.round(right), Math.round(down)) : [right, down];
    const move = (value, i) => value + (i % 2 ? y / picture.height : x / picture.width);
    this.#setLayer(this.active, {
      base: base && shifted(base, picture, x, y),
      strokes: strokes.map((stroke) => ({ ...stroke, points: stroke.points.map(move) })),
    });
    this.#changed(final, time);
  }

  /** As far as a digit's middle may go. */
  #allowed(base, right, down) {
    const { picture } = this.model;
    const mass = centreOfMass(base, picture.width);
    if (!mass) return [0, 0];
    const limit = (now, by, side) => Math.round(Math.max(-5 - now + side / 2, Math.min(5 - now + side / 2, by)));
    return [limit(mass.x, right, picture.width), limit(mass.y, down, picture.height)];
  }
}
