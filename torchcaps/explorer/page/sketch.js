// The picture that is being made: one layer, or one for each object, with undo. Layers are never changed in place, so a
// step back is only the layers as they were.

import { allowedShift, allowedStrokeShift, emptyLayer, isEmpty, layerPixels, movedTo, picturePixels, shifted } from "./strokes.js";

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
    /** Only there to be looked at until someone draws. */
    this.temporary = false;
    /** @type {?number[]} the classes it shows, if they are known */
    this.labels = null;
    /** @type {?number} the test picture that it is */
    this.sample = null;
    /** Its first layer is a whole picture with all its objects. */
    this.whole = false;
    /** What a pointer is doing, on the layer where it began. Whatever else changes the sketch ends it. */
    this.open = null;
  }

  get empty() {
    return this.layers.every(isEmpty);
  }

  /** How many objects are on the pad; a whole picture may show as many as the model finds. */
  get objects() {
    return this.whole ? this.layers.length : this.layers.filter((layer) => !isEmpty(layer)).length;
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

  /** Before every change: ends what is open, and keeps what undo brings back. */
  #remember() {
    this.open = null;
    const { layers, active, temporary, labels, sample, whole } = this;
    this.history.push({ layers, active, temporary, labels, sample, whole });
    if (this.history.length > LONGEST_HISTORY) this.history.shift();
  }

  #setLayer(index, layer) {
    this.layers = this.layers.map((old, i) => (i === index ? layer : old));
  }

  activate(index) {
    if (index >= this.layers.length || index === this.active) return;
    this.end();
    this.active = index;
    this.dispatchEvent(new Event("layer"));
  }

  begin(x, y, erase, time) {
    this.#remember();
    // The picture that the page opened with is there to be looked at; the first line starts a new one.
    if (this.temporary && !erase) this.layers = this.layers.map(emptyLayer);
    Object.assign(this, { temporary: false, labels: null, sample: null });
    const at = this.active;
    const layer = this.layers[at];
    this.open = { kind: "stroke", at, changed: true };
    this.#setLayer(at, { ...layer, strokes: [...layer.strokes, { erase, points: [x, y] }] });
    this.#changed(false, time);
  }

  /** @param {number[]} points x and y in turn */
  extend(points, time) {
    if (this.open?.kind !== "stroke") return;
    const { at } = this.open;
    const layer = this.layers[at];
    const stroke = layer.strokes.at(-1);
    const grown = stroke.points.slice();
    for (let i = 0; i < points.length; i += 2) {
      const far = Math.hypot(points[i] - grown.at(-2), points[i + 1] - grown.at(-1)) > CLOSEST;
      if (far) grown.push(points[i], points[i + 1]);
    }
    if (grown.length === stroke.points.length) return;
    this.#setLayer(at, { ...layer, strokes: [...layer.strokes.slice(0, -1), { ...stroke, points: grown }] });
    this.#changed(false, time);
  }

  /** Starts a movement of the active layer, which `moveBy` then does as a whole: one step of undo. */
  beginMove() {
    this.end();
    this.open = { kind: "move", at: this.active, layer: this.layers[this.active], changed: false };
  }

  /** @param {number} right in pixels of the model's picture, since the movement began */
  moveBy(right, down, time) {
    if (this.open?.kind !== "move") return;
    const { at, layer, changed } = this.open;
    const { base, strokes } = layer;
    const { picture } = this.model;
    const [x, y] = base
      ? allowedShift(base, picture, right, down)
      : allowedStrokeShift(strokes, picture, right, down);
    if (!changed && x === 0 && y === 0) return;
    if (!changed) {
      this.#remember();
      this.open = { kind: "move", at, layer, changed: true };
    }
    // what it shows is still the same
    Object.assign(this, { temporary: false, sample: null });
    const move = (value, i) => value + (i % 2 ? y / picture.height : x / picture.width);
    this.#setLayer(at, {
      base: base && shifted(base, picture, x, y),
      strokes: strokes.map((stroke) => ({ ...stroke, points: stroke.points.map(move) })),
    });
    this.#changed(false, time);
  }

  /** The stroke or the movement is complete; nothing if there is none. */
  end(time) {
    const changed = this.open?.changed;
    this.open = null;
    if (changed) this.#changed(true, time);
  }

  clear(time) {
    if (this.empty) return;
    this.#remember();
    this.layers = this.layers.map(emptyLayer);
    Object.assign(this, { temporary: false, labels: null, sample: null, whole: false });
    this.activate(0);
    this.#changed(true, time);
  }

  undo(time) {
    if (this.takeBack()) this.#changed(true, time);
  }

  /** A step back that nobody hears of, because something else comes in its place at once. */
  takeBack() {
    const before = this.history.pop();
    if (!before) return false;
    Object.assign(this, before, { open: null });
    this.dispatchEvent(new Event("layer"));
    return true;
  }

  /** Shows these layers: of a test picture, an upload or a link. */
  load(layers, { labels = null, sample = null, temporary = false, whole = false, time } = {}) {
    // the first picture is nothing that could be undone
    if (this.history.length || !this.empty) this.#remember();
    this.layers = Array.from({ length: this.layers.length }, (_, i) => layers[i] ?? emptyLayer());
    Object.assign(this, { labels, sample, temporary, whole });
    this.#changed(true, time);
  }

  /** Puts a digit on the active layer and goes on to the next one. @param {{x: number, y: number}} [at] 0 to 1 */
  put(pixels, at, time) {
    this.#remember();
    if (this.temporary) this.layers = this.layers.map(emptyLayer);
    Object.assign(this, { temporary: false, labels: null, sample: null });
    const { picture } = this.model;
    const base = at ? movedTo(pixels, picture, at.x * picture.width, at.y * picture.height) : pixels;
    this.#setLayer(this.active, { base, strokes: [] });
    this.activate((this.active + 1) % this.layers.length);
    this.#changed(true, time);
  }
}
