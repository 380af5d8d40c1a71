// The drawing pad: turns pointers into strokes of the sketch, and shows it.

import { css, layerTint } from "./colours.js";
import { asCanvas, newCanvas } from "./pictures.js";
import { isEmpty, paintStrokes } from "./strokes.js";

/** @typedef {import("./sketch.js").Sketch} Sketch */
/** @typedef {"draw"|"erase"|"move"} Tool */

const PEN = 0.072; // of the pad's width
const ERASER = 5; // the button that a pen's other end is
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Pad {
  /** @type {Tool} */
  tool = "draw";
  /** @type {?Sketch} */
  sketch = null;

  constructor(canvas, hint) {
    this.canvas = canvas;
    this.hint = hint;
    this.pointer = null;
    new ResizeObserver(() => this.#fit()).observe(canvas);
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#up(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    // a long press is a slow stroke, not a menu
    canvas.addEventListener("contextmenu", (event) => this.pointer !== null && event.preventDefault());
  }

  show(sketch) {
    this.sketch = sketch;
    this.pointer = null;
    const { width, height } = sketch.model.picture;
    this.canvas.style.aspectRatio = `${width} / ${height}`;
    sketch.addEventListener("change", () => this.#later());
    sketch.addEventListener("layer", () => this.#later());
    this.#fit();
  }

  /** Where a pointer is on the pad, 0 to 1. */
  place({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return { x: (clientX - box.left) / box.width, y: (clientY - box.top) / box.height };
  }

  #down(event) {
    if (!this.sketch || this.pointer !== null || ![0, ERASER].includes(event.button)) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true, focusVisible: false });
    this.pointer = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    // until the pointer is lifted, whatever is chosen meanwhile
    this.using = event.button === ERASER ? "erase" : this.tool;
    if (this.using === "move") {
      this.from = this.place(event);
      this.sketch.beginMove();
    } else {
      this.sketch.begin(...this.#point(event), this.using === "erase", event.timeStamp);
    }
  }

  #move(event) {
    if (event.pointerId !== this.pointer) return;
    if (this.using === "move") {
      const { width, height } = this.sketch.model.picture;
      const { x, y } = this.place(event);
      this.sketch.moveBy((x - this.from.x) * width, (y - this.from.y) * height, event.timeStamp);
      return;
    }
    const between = event.getCoalescedEvents?.() ?? [];
    const points = (between.length ? between : [event]).flatMap((each) => this.#point(each));
    this.sketch.extend(points, event.timeStamp);
  }

  /** Of a stroke: a hand that leaves the pad draws along its edge. */
  #point(event) {
    const { x, y } = this.place(event);
    return [x, y].map((value) => Math.round(Math.max(0, Math.min(1, value)) * 1000) / 1000);
  }

  #up(event) {
    if (event.pointerId !== this.pointer) return;
    this.pointer = null;
    this.sketch.end(event.timeStamp);
  }

  #key(event) {
    const arrow = ARROWS[event.key];
    if (!arrow || !this.sketch || this.sketch.layers.length < 2 || isEmpty(this.sketch.layers[this.sketch.active])) {
      return;
    }
    event.preventDefault();
    this.sketch.beginMove();
    this.sketch.moveBy(...arrow, event.timeStamp);
    this.sketch.end(event.timeStamp);
  }

  #fit() {
    const box = this.canvas.getBoundingClientRect();
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (width === 0 || height === 0) return;
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.offstage = newCanvas(width, height);
    }
    this.#draw();
  }

  /** At most one drawing a frame, however many events there were. */
  #later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.#draw();
    });
  }

  #draw() {
    const { sketch, canvas } = this;
    if (!sketch || !this.offstage) return;
    const context = canvas.getContext("2d");
    context.globalCompositeOperation = "source-over";
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.globalCompositeOperation = "lighter";
    sketch.layers.forEach((layer, i) => {
      const tint = sketch.layers.length > 1 ? layerTint(i) : null;
      if (!isEmpty(layer)) context.drawImage(this.#layer(layer, tint), 0, 0);
    });
    this.hint.hidden = !(sketch.empty || sketch.temporary);
  }

  #layer(layer, tint) {
    const { width, height } = this.canvas;
    const context = this.offstage.getContext("2d");
    context.fillStyle = "#000";
    context.fillRect(0, 0, width, height);
    if (layer.base) {
      context.imageSmoothingEnabled = false;
      context.drawImage(asCanvas(layer.base, this.sketch.model.picture, tint ?? undefined), 0, 0, width, height);
    }
    const colour = tint ? css(tint) : "#fff";
    const pen = PEN * Math.min(width, height);
    paintStrokes(context, layer.strokes, { scaleX: width, scaleY: height, shiftX: 0, shiftY: 0, pen, colour });
    return this.offstage;
  }
}
