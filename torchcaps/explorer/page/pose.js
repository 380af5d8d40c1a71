// The pose of one class capsule: a slider for each number, and the picture that the decoder makes of them.

import { blank, fromBase64, paint } from "./pictures.js";
import { backAfterScrolling } from "./sliders.js";

/** @typedef {import("./api.js").Model} Model */

const SWING = 0.25;
const SWING_SECONDS = 3;
const NOISE = 0.4; // of the pose's length
const FARTHEST = 10; // that the server draws from
const element = (id) => document.getElementById(id);
const norm = (pose) => Math.hypot(...pose);
const within = (value) => Math.max(-FARTHEST, Math.min(FARTHEST, value));

export class Pose extends EventTarget {
  /** Of which pose a drawing is: one that comes after another pose was shown is late. */
  token = {};

  /** @param {(label: number, pose: number[], time: number, token: object) => void} decode */
  constructor(decode) {
    super();
    this.decode = decode;
    this.rows = [];
    element("pose-reset").addEventListener("click", (event) => this.reset(event.timeStamp));
    element("pose-random").addEventListener("click", (event) => this.randomise(event.timeStamp));
  }

  /** @param {Model} model */
  prepare(model) {
    this.stop({ settle: false });
    this.token = {};
    this.model = model;
    this.label = null;
    this.seen = null;
    this.pose = null;
    this.rows = Array.from({ length: model.pose_size }, (_, dimension) => this.#row(dimension));
    element("pose").replaceChildren(...this.rows.map((row) => row.box));
    element("pose-picture").hidden = !model.decodes;
    for (const id of ["pose-reset", "pose-random"]) element(id).hidden = !model.decodes;
    if (model.decodes) {
      element("pose-picture").style.aspectRatio = `${model.drawing.width} / ${model.drawing.height}`;
      blank(element("pose-picture"), model.drawing);
    }
  }

  #row(dimension) {
    const box = document.createElement("div");
    box.className = "slider";
    const label = document.createElement("label");
    label.htmlFor = `pose-${dimension}`;
    label.textContent = dimension + 1;
    const input = document.createElement("input");
    Object.assign(input, { type: "range", id: `pose-${dimension}`, min: -1, max: 1, step: 0.01, value: 0 });
    input.disabled = !this.model.decodes;
    input.dataset.dimension = dimension;
    input.setAttribute("aria-label", `pose number ${dimension + 1}`);
    const origin = document.createElement("span");
    origin.className = "origin";
    const rail = document.createElement("span");
    rail.className = "rail";
    rail.append(origin, input);
    // not <output>, which is read out at every change
    const output = document.createElement("span");
    output.className = "number";
    const play = document.createElement("button");
    play.type = "button";
    play.className = "pose-play";
    play.dataset.dimension = dimension;
    play.textContent = "▶";
    play.disabled = !this.model.decodes;
    play.setAttribute("aria-label", `swing pose number ${dimension + 1}`);
    play.setAttribute("aria-pressed", "false");

    input.addEventListener("input", (event) => {
      this.stop();
      this.#set(dimension, input.valueAsNumber, event.timeStamp);
    });
    backAfterScrolling(input);
    const back = (event) => {
      this.stop();
      if (this.seen) this.#set(dimension, this.seen[dimension], event.timeStamp);
    };
    input.addEventListener("dblclick", back);
    input.addEventListener("keydown", (event) => event.key === "0" && back(event));
    play.addEventListener("click", () => (this.playing === dimension ? this.stop() : this.play(dimension)));
    box.append(label, play, rail, output);
    return { box, input, origin, output, play };
  }

  /**
   * Shows the pose that was seen; changes made by hand are gone, as they were to another pose.
   * @param {?string} drawing of it, if there is one already
   */
  show(label, pose, drawing) {
    this.stop({ settle: false });
    this.token = {};
    this.label = label;
    this.seen = pose;
    this.pose = pose.slice();
    const reach = Math.min(FARTHEST, Math.max(1, Math.ceil(Math.max(...pose.map(Math.abs)))));
    this.rows.forEach(({ input, origin }, i) => {
      input.min = -reach;
      input.max = reach;
      origin.style.setProperty("--at", (within(pose[i]) + reach) / (2 * reach));
    });
    this.#refresh();
    if (drawing) this.draw(drawing);
    else this.#ask(0);
  }

  draw(drawing) {
    if (this.model.decodes) paint(element("pose-picture"), fromBase64(drawing), this.model.drawing);
  }

  /** @returns {[number, number][]} dimension and value of those changed by hand */
  edits() {
    if (!this.pose) return [];
    const rounded = (value) => Math.round(within(value) * 1000) / 1000;
    return this.pose.map((value, i) => [i, rounded(value)]).filter(([i, value]) => value !== rounded(this.seen[i]));
  }

  applyEdits(edits) {
    if (!this.pose) return;
    for (const [dimension, value] of edits) if (dimension < this.pose.length) this.pose[dimension] = value;
    this.#edited(0);
  }

  reset(time) {
    if (!this.seen) return;
    this.stop();
    this.pose = this.seen.slice();
    this.#edited(time);
  }

  /** Another direction near this one, as long as before: just as sure, looking a little different. */
  randomise(time) {
    if (!this.seen) return;
    this.stop();
    const length = norm(this.seen);
    const each = (NOISE * length) / Math.sqrt(this.seen.length);
    const noisy = this.seen.map((value) => value + each * gaussian());
    const scale = length / (norm(noisy) || 1);
    this.pose = noisy.map((value) => value * scale);
    this.#edited(time);
  }

  play(dimension) {
    this.stop();
    if (!this.pose) return;
    this.playing = dimension;
    this.#mark(dimension, true);
    const middle = this.pose[dimension];
    const start = performance.now();
    const frame = (now) => {
      if (this.playing !== dimension) return;
      const phase = (2 * Math.PI * (now - start)) / 1000 / SWING_SECONDS;
      this.#set(dimension, middle + SWING * Math.sin(phase), now);
      requestAnimationFrame(frame);
    };
    this.settle = () => this.#set(dimension, middle, 0);
    requestAnimationFrame(frame);
  }

  /** Ends a swing where it began; without settling if another pose comes anyway. */
  stop({ settle = true } = {}) {
    if (this.playing === undefined) return;
    this.#mark(this.playing, false);
    this.playing = undefined;
    if (settle) this.settle();
  }

  #mark(dimension, on) {
    const { play } = this.rows[dimension];
    play.setAttribute("aria-pressed", on);
    play.textContent = on ? "■" : "▶";
  }

  #set(dimension, value, time) {
    if (!this.pose) return;
    this.pose[dimension] = value;
    this.#edited(time, dimension);
  }

  #edited(time, dimension) {
    this.#refresh(dimension);
    this.#ask(time);
    this.dispatchEvent(new Event("edit"));
  }

  #ask(time) {
    if (this.model.decodes && this.label !== null) this.decode(this.label, this.pose.map(within), time, this.token);
  }

  /** @param {number} [only] this row */
  #refresh(only) {
    this.rows.forEach(({ box, input, output }, i) => {
      if (only !== undefined && i !== only) return;
      input.value = this.pose[i];
      output.textContent = signed(this.pose[i]);
      box.classList.toggle("changed", Math.abs(this.pose[i] - this.seen[i]) > 0.005);
    });
    const length = norm(this.pose);
    const telling = this.model.measure === "length"; // else the activation is a number of its own
    element("pose-length").textContent = telling && this.model.decodes ? `length ${length.toFixed(2)}` : "";
    element("pose-note").textContent = !this.model.decodes
      ? "This model has no decoder, so a pose cannot be drawn; these are its numbers."
      : telling && length < 0.1
        ? "This capsule is hardly active, so there is little to draw. Choose one with a longer bar."
        : "";
  }
}

/** Two decimals, with a real minus sign, and none before 0.00. */
function signed(value) {
  return value.toFixed(2).replace("-0.00", "0.00").replace("-", "−");
}

/** A draw from the normal distribution. */
function gaussian() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}
