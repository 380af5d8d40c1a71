// The routing panel: parts as dots over the picture, classes beside it, and what happens between them step by step.

import { Bars, shownClasses } from "./bars.js";
import { appearance, arrange, drawnParts, largestSent, largestShare, nearest, neighbour } from "./field.js";
import { setText } from "./message.js";
import { asCanvas, fromBase64 } from "./pictures.js";
import { drawRibbons, drawSpark, fillTable, seenBy, senders, summary, svg } from "./routing_parts.js";
import { offerSteps } from "./steps.js";

/** @typedef {import("./api.js").Routing} Data */
/** @typedef {import("./api.js").Model} Model */

const element = (id) => document.getElementById(id);
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const SECONDS_A_STEP = 1;
const SECONDS_OF_ALL = 6; // many steps are played faster

export class RoutingPanel extends EventTarget {
  constructor() {
    super();
    this.field = element("field");
    this.backdrop = svg("g");
    this.parents = new Bars(element("parents"), (label) => this.#pinParent(label));
    this.measure = "share";
    this.step = null; // counted from 1; null until someone chooses: the last one
    this.steps = null; // how many; null: as many as in training
    this.#listen();
  }

  /** @param {Model} model @param {{step?: ?number, steps?: ?number}} [chosen] by a link */
  prepare(model, { step, steps } = {}) {
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

  /** @param {Data} data */
  show(data) {
    this.data = data;
    this.parent = this.pinned = null;
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
      this.dots = drawn.map((_, i) => svg("circle", { tabindex: i ? -1 : 0, role: "img" }));
      this.field.replaceChildren(this.backdrop, ...this.dots);
    }
    this.part = this.#focused();
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
    this.data = null;
    this.part = this.parent = this.pinned = null;
    this.dots = [];
    this.field.replaceChildren();
    element("ribbons").replaceChildren();
    element("entropy").textContent = element("agreement").textContent = "–";
    for (const id of ["entropy-line", "agreement-line", "goes"]) element(id).replaceChildren();
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

  draw() {
    this.#labelStep();
    if (!this.data) return;
    const { steps, uniform_entropy: uniform } = this.data;
    const step = steps[this.current - 1];
    this.looks().forEach(({ size, label, decided }, i) => {
      const { style } = this.dots[i];
      style.setProperty("r", `${this.layout.largest * Math.sqrt(Math.max(size, 0.012))}px`);
      style.fill = label === null ? "var(--undecided)"
        : `color-mix(in oklab, var(--class-${label}) ${Math.round(100 * decided)}%, var(--undecided))`;
      style.opacity = this.parent !== null && label === null ? 0.25 : 0.95;
      this.dots[i].classList.toggle("current", i === this.part);
      this.dots[i].setAttribute("aria-label", this.#name(i));
    });
    this.#outline();
    const classes = shownClasses(steps.at(-1).lengths);
    this.parents.show(step.lengths, { classes, chosen: this.pinned ?? -1 });
    element("entropy").textContent = `${step.entropy.toFixed(3)} of ${uniform.toFixed(3)}`;
    element("agreement").textContent = step.agreement.toFixed(2);
    const [entropies, agreements] = ["entropy", "agreement"].map((name) => steps.map((each) => each[name]));
    drawSpark(element("entropy-line"), entropies, this.current - 1, { span: 0.02 * uniform, top: uniform });
    drawSpark(element("agreement-line"), agreements, this.current - 1, { span: 0.05 });
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

  #select(part) {
    if (part === this.part || !this.data) return;
    this.part = part;
    if (part !== null) this.parent = null;
    this.draw();
  }

  #setParent(label) {
    if (label === this.parent || !this.data) return;
    this.parent = label;
    if (label !== null) this.part = null;
    this.draw();
  }

  #pinParent(label) {
    this.pinned = this.pinned === label ? null : label;
    this.parent = this.pinned;
    this.part = null;
    this.draw();
  }

  #listen() {
    const { field } = this;
    const under = (event) => {
      if (!this.data) return null;
      const matrix = field.getScreenCTM();
      if (!matrix) return null;
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const index = nearest(this.layout.points, x, y, this.layout.spacing);
      return index < 0 ? null : index;
    };
    field.addEventListener("pointermove", (event) => this.#select(under(event)));
    field.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.#select(under(event));
    });
    field.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") this.#select(this.#focused());
    });
    field.addEventListener("focusin", () => this.#select(this.#focused()));
    field.addEventListener("focusout", () => this.#select(null));
    field.addEventListener("keydown", (event) => {
      const from = this.#focused();
      if (!ARROWS[event.key] || from === null) return;
      event.preventDefault();
      event.stopPropagation();
      const to = neighbour(this.layout.points, from, ARROWS[event.key]);
      this.dots[from].setAttribute("tabindex", -1);
      this.dots[to].setAttribute("tabindex", 0);
      this.dots[to].focus();
    });

    const list = element("parents");
    const labelOf = (event) => {
      const button = event.target.closest?.("button");
      return button ? Number(button.dataset.class) : null;
    };
    list.addEventListener("pointerover", (event) => event.pointerType !== "touch" && this.#setParent(labelOf(event)));
    list.addEventListener("pointerleave", () => this.#setParent(this.pinned));
    list.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) this.#setParent(labelOf(event));
    });
    list.addEventListener("focusout", () => {
      this.pinned = null;
      this.#setParent(null);
    });

    element("step").addEventListener("input", (event) => {
      this.stop();
      this.setStep(event.target.valueAsNumber);
    });
    element("step-play").addEventListener("click", () => (this.timer ? this.stop() : this.play()));
    for (const button of element("measure").children) {
      button.addEventListener("click", () => {
        this.measure = button.dataset.measure;
        for (const each of element("measure").children) each.setAttribute("aria-pressed", each === button);
        this.draw();
      });
    }
    new ResizeObserver(() => this.data && this.draw()).observe(element("stage"));
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
