// The routing panel: parts as dots over the picture, classes beside it, and what happens between them step by step.

import { Bars, shownClasses } from "./bars.js";
import { appearance, arrange, drawnParts, largestSent, largestShare, nearest, neighbour } from "./field.js";
import { setText } from "./message.js";
import { asCanvas, fromBase64 } from "./pictures.js";
import {
  clearNumbers, drawRibbons, fillTable, seenBy, senders, showNumbers, summary, svg,
} from "./routing_parts.js";
import { backAfterScrolling } from "./sliders.js";
import { offerSteps } from "./steps.js";

/** @typedef {import("./api.js").Routing} Data */
/** @typedef {import("./api.js").Model} Model */

const element = (id) => document.getElementById(id);
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const NOTHING = { part: null, parent: null };
const SECONDS_A_STEP = 1;
const SECONDS_OF_ALL = 6; // many steps are played faster

export class RoutingPanel extends EventTarget {
  constructor() {
    super();
    this.field = element("field");
    this.backdrop = svg("g");
    this.parents = new Bars(element("parents"), (label) => this.#pin({ part: null, parent: label }));
    this.measure = "share";
    this.step = null; // counted from 1; null until someone chooses: the last one
    this.steps = null; // how many; null: as many as in training
    this.pin = NOTHING; // the dot or the class that someone clicked: watched while nothing else is pointed at
    this.#listen();
  }

  /**
   * @param {Model} model
   * @param {{step?: ?number, steps?: ?number, measure?: string, watched?: ?number}} [chosen] by a link
   */
  prepare(model, { step, steps, measure, watched } = {}) {
    this.stop();
    this.model = model;
    this.step = step || null;
    this.steps = offerSteps(model, steps, (count) => {
      this.stop();
      Object.assign(this, { steps: count, step: null });
      this.stale(true);
      this.dispatchEvent(new Event("steps"));
    });
    this.parents.reset(model.classes, model.measure);
    this.clear();
    if (measure) this.#measureBy(measure);
    this.pin = { part: null, parent: watched ?? null };
    const count = this.steps ?? Math.max(1, model.iterations);
    element("step").max = count;
    element("step").disabled = element("step-play").disabled = count < 2;
    element("step-count").textContent = count;
    this.#labelStep();
  }

  /** The picture is another one; what is shown is of the one before. */
  stale(yes) {
    element("stage").classList.toggle("stale", yes);
  }

  /** @param {Data} data @param {string} text of the picture: of the same one, what is watched stays */
  show(data, text) {
    this.data = data;
    if (this.text !== null && text !== this.text) this.pin = NOTHING;
    this.text = text;
    this.stale(false);
    this.most = largestSent(data);
    this.indices = drawnParts(data.parts);
    const drawn = this.indices.map((i) => data.parts[i]);
    this.layout = arrange(drawn, this.model.drawing);
    const { view } = this.layout;
    this.field.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    this.picture = asCanvas(fromBase64(data.seen), this.model.drawing);
    this.patch = svg("rect", { class: "patch", width: data.patch[1], height: data.patch[0] });
    this.backdrop.replaceChildren(this.#ground(), this.patch);
    // Dots stay when only the picture has changed: they grow and shrink into the new one, and keep the focus.
    if (this.dots.length !== drawn.length) {
      this.dots = drawn.map((_, i) => svg("circle", { tabindex: i ? -1 : 0, role: "button" }));
      this.field.replaceChildren(this.backdrop, ...this.dots);
    }
    this.#point({ part: this.#focused(), parent: null });
    this.dots.forEach((dot, i) => {
      dot.setAttribute("cx", this.layout.points[i].x);
      dot.setAttribute("cy", this.layout.points[i].y);
      dot.dataset.part = this.indices[i];
    });
    element("step").max = data.steps.length;
    element("step").disabled = element("step-play").disabled = data.steps.length < 2;
    element("step-count").textContent = data.steps.length;
    element("patch-size").textContent = seenBy(data.patch, this.model.drawing);
    element("first-step").hidden = data.steps[0].entropy < data.uniform_entropy - 1e-3;
    this.draw();
  }

  #ground() {
    const { width, height } = this.picture;
    const kind = this.model.picture.channels === 1 ? "ground grey" : "ground";
    return svg("image", { x: 0, y: 0, width, height, class: kind, href: this.picture.toDataURL() });
  }

  /** Outline what the chosen part sees. */
  #outline() {
    this.patch.classList.toggle("shown", this.part !== null);
    if (this.part === null) return;
    const { row, column } = this.data.parts[this.indices[this.part]];
    const [height, width] = this.data.patch;
    this.patch.setAttribute("x", column + 0.5 - width / 2);
    this.patch.setAttribute("y", row + 0.5 - height / 2);
  }

  clear() {
    this.data = this.text = null;
    this.pin = NOTHING;
    this.part = this.parent = null;
    this.dots = [];
    this.field.replaceChildren();
    element("ribbons").replaceChildren();
    clearNumbers();
    element("goes").replaceChildren();
    setText(element("routing-summary"), "");
    this.stale(false);
    this.parents.show(this.model.classes.map(() => 0));
  }

  get current() {
    const count = this.data?.steps.length ?? this.steps ?? this.model?.iterations ?? 1;
    return Math.max(1, Math.min(this.step ?? Infinity, count));
  }

  setStep(step) {
    this.step = step;
    this.draw();
    this.dispatchEvent(new Event("step"));
  }

  move(by) {
    this.stop();
    if (this.data) this.setStep(Math.max(1, Math.min(this.data.steps.length, this.current + by)));
  }

  play() {
    if (!this.data) return;
    this.stop();
    element("step-play").textContent = "■";
    this.setStep(1);
    this.timer = setInterval(() => {
      if (this.current >= this.data.steps.length) this.stop();
      else this.setStep(this.current + 1);
    }, 1000 * Math.min(SECONDS_A_STEP, SECONDS_OF_ALL / this.data.steps.length));
  }

  stop() {
    clearInterval(this.timer);
    this.timer = undefined;
    element("step-play").textContent = "▶";
  }

  /** What each dot looks like now; for the picture that is saved, too. */
  looks() {
    const { coupling } = this.data.steps[this.current - 1];
    const how = { measure: this.measure, parent: this.parent, most: this.most };
    return this.indices.map((i) => appearance(this.data.parts[i], coupling[i], how));
  }

  /** Of the class that is watched, else of the most active one. @returns {{label: number, value: number}} */
  agreement() {
    const { lengths, agreements } = this.data.steps[this.current - 1];
    const label = this.parent ?? lengths.indexOf(Math.max(...lengths));
    return { label, value: agreements[label] };
  }

  /** What the sizes of the dots show, for the picture that is saved. */
  measureInWords() {
    const what = this.measure === "above" ? "what goes beyond an equal share" : "largest share";
    return `size of a dot: activation × ${this.parent === null ? what : `share for ${this.model.classes[this.parent]}`}`;
  }

  draw() {
    this.#labelStep();
    if (!this.data) return;
    const { steps } = this.data;
    const step = steps[this.current - 1];
    this.looks().forEach(({ size, label, decided }, i) => {
      const { style } = this.dots[i];
      style.setProperty("r", `${this.layout.largest * Math.sqrt(Math.max(size, 0.012))}px`);
      style.fill = label === null ? "var(--undecided)"
        : `color-mix(in oklab, var(--class-${label}) ${Math.round(100 * decided)}%, var(--undecided))`;
      style.opacity = this.parent !== null && label === null ? 0.25 : 0.95;
      this.dots[i].classList.toggle("current", i === this.part);
      this.dots[i].setAttribute("aria-label", this.#name(i));
      this.dots[i].setAttribute("aria-pressed", i === this.pin.part);
    });
    this.#outline();
    const classes = shownClasses(steps.at(-1).lengths);
    this.parents.show(step.lengths, { classes, chosen: this.pin.parent ?? -1 });
    showNumbers(this.data, this.current, this.agreement(), this.model.classes);
    this.#details(step);
    setText(element("routing-summary"), summary(this.data, this.current, this.model.classes));
  }

  #details(step) {
    const row = this.part === null ? null : step.coupling[this.indices[this.part]];
    fillTable(element("goes"), row, this.part === null ? null : this.data.parts[this.indices[this.part]],
      this.parent === null ? null : senders(step, this.parent, this.model.classes), this.model.classes);
    drawRibbons(element("ribbons"), element("stage"), row && this.dots[this.part], row, this.parents);
  }

  #labelStep() {
    element("step").value = this.current;
    element("step-value").textContent = this.current;
  }

  #measureBy(measure) {
    this.measure = measure;
    for (const button of element("measure").children) {
      button.setAttribute("aria-pressed", button.dataset.measure === measure);
    }
  }

  /** Shows a dot or a class; where there is neither, what is pinned. */
  #point({ part, parent }) {
    const target = part === null && parent === null ? this.pin : { part, parent };
    const same = target.part === this.part && target.parent === this.parent;
    if (same || !this.data) return;
    Object.assign(this, target);
    this.draw();
  }

  /** Watches a dot or a class from now on; a second time ends it. */
  #pin(target) {
    if (!this.data) return;
    const again = target.part === this.pin.part && target.parent === this.pin.parent;
    this.pin = again ? NOTHING : target;
    Object.assign(this, this.pin);
    this.draw();
    this.dispatchEvent(new Event("watch"));
  }

  unpin() {
    if (this.pin.part !== null || this.pin.parent !== null) this.#pin(this.pin);
  }

  #listen() {
    this.#listenToField();
    this.#listenToParents();
    backAfterScrolling(element("step"));
    element("step").addEventListener("input", (event) => {
      this.stop();
      this.setStep(event.target.valueAsNumber);
    });
    element("step-play").addEventListener("click", () => (this.timer ? this.stop() : this.play()));
    for (const button of element("measure").children) {
      button.addEventListener("click", () => {
        this.#measureBy(button.dataset.measure);
        this.draw();
        this.dispatchEvent(new Event("watch"));
      });
    }
    new ResizeObserver(() => this.data && this.draw()).observe(element("stage"));
  }

  #listenToField() {
    const { field } = this;
    const under = (event) => {
      if (!this.data) return null;
      const matrix = field.getScreenCTM();
      if (!matrix) return null;
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const index = nearest(this.layout.points, x, y, this.layout.spacing);
      return index < 0 ? null : index;
    };
    field.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") this.#point({ part: under(event), parent: null });
    });
    field.addEventListener("pointerdown", (event) => event.preventDefault()); // a click is no focus
    field.addEventListener("click", (event) => this.#pin({ part: under(event), parent: null }));
    field.addEventListener("pointerleave", () => this.#point({ part: this.#focused(), parent: null }));
    field.addEventListener("focusin", () => this.#point({ part: this.#focused(), parent: null }));
    field.addEventListener("focusout", () => this.#point(NOTHING));
    field.addEventListener("keydown", (event) => {
      const from = this.#focused();
      if (from !== null && ["Enter", " "].includes(event.key)) {
        event.preventDefault();
        this.#pin({ part: from, parent: null });
      }
      if (!ARROWS[event.key] || from === null) return;
      event.preventDefault();
      event.stopPropagation();
      const to = neighbour(this.layout.points, from, ARROWS[event.key]);
      this.dots[from].setAttribute("tabindex", -1);
      this.dots[to].setAttribute("tabindex", 0);
      this.dots[to].focus();
    });
  }

  #listenToParents() {
    const list = element("parents");
    const labelOf = (event) => {
      const button = event.target.closest?.("button");
      return button ? Number(button.dataset.class) : null;
    };
    const pointAt = (label) => this.#point({ part: null, parent: label });
    list.addEventListener("pointerover", (event) => event.pointerType !== "touch" && pointAt(labelOf(event)));
    list.addEventListener("pointerleave", () => this.#point(NOTHING));
    list.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) pointAt(labelOf(event));
    });
    list.addEventListener("focusout", () => this.#point(NOTHING));
  }

  #focused() {
    const index = this.dots?.indexOf(document.activeElement) ?? -1;
    return index < 0 ? null : index;
  }

  /** What a dot is, for those who hear it. */
  #name(index) {
    const { row, column, type } = this.data.parts[this.indices[index]];
    const { label, share } = largestShare(this.data.steps[this.current - 1].coupling[this.indices[index]]);
    const where = `part of type ${type + 1} at row ${Math.round(row)}, column ${Math.round(column)}`;
    const goes = `sends ${Math.round(share * 100)} % to ${this.model.classes[label]}`;
    return `${where}: ${goes}`;
  }
}
