// What the network says: the prediction, the bars, and the reconstructions beside the input.

import { Bars } from "./bars.js";
import { css, layerTint } from "./colours.js";
import { setText } from "./message.js";
import { asCanvas, blank, fromBase64, paint, paintTogether, similarity } from "./pictures.js";
import { names } from "./samples.js";
import { isEmpty } from "./strokes.js";

/** @typedef {import("./api.js").Model} Model */
/** @typedef {import("./api.js").Look} Look */

const UNSURE = 0.3; // a shorter capsule says that its class is not there
const element = (id) => document.getElementById(id);

/** Of the class capsules, for those who hear the page and for the picture that is saved. */
export const barsTitle = ({ measure }) => `${measure === "length" ? "Lengths" : "Activations"} of the class capsules`;

export class Answer {
  constructor(choose) {
    this.bars = new Bars(element("bars"), choose);
  }

  /** @param {Model} model */
  reset(model) {
    this.model = model;
    this.look = null;
    this.bars.reset(model.classes, model.measure);
    element("bars-title").textContent = barsTitle(model);
    element("no-decoder").hidden = model.decodes;
    element("pictures").classList.toggle("undrawn", !model.decodes);
    element("alone").hidden = model.objects < 2 || !model.decodes;
    element("alone").replaceChildren();
    element("reconstruction-caption").textContent = "redrawn";
    const many = model.classes.length > this.bars.rows.length;
    element("bars-note").hidden = !many;
    element("bars-note").textContent = many
      ? `The ${this.bars.rows.length} most active of ${model.classes.length} capsules are shown.`
      : "";
    blank(element("reconstruction"), model.drawing);
  }

  /**
   * @param {Look} look
   * @param {Uint8Array} pixels that were looked at
   * @param {import("./sketch.js").Sketch} sketch
   * @param {number} chosen class
   */
  show(look, pixels, sketch, chosen) {
    const { model } = this;
    this.look = look;
    this.#words(look, sketch.labels);
    this.bars.show(look.lengths, { found: look.blank ? [] : look.found, chosen });
    paint(element("answer-input"), pixels, model.picture);
    if (!model.decodes) return;
    if (look.blank || look.drawings.length === 0) {
      blank(element("reconstruction"), model.drawing);
      element("alone").replaceChildren();
    } else if (model.objects > 1) {
      this.#several(look, sketch);
    } else {
      paint(element("reconstruction"), fromBase64(look.drawings[0].pixels), model.drawing);
    }
    const said = look.blank ? "empty" : `of ${names(look.found, model)}`;
    element("reconstruction").setAttribute("aria-label", `The reconstruction ${said}`);
  }

  choose(label) {
    if (this.look) this.bars.show(this.look.lengths, { found: this.look.blank ? [] : this.look.found, chosen: label });
  }

  #words({ blank: black, found, besides, lengths }, labels) {
    const prediction = element("prediction");
    const note = element("prediction-note");
    prediction.classList.toggle("blank", black);
    prediction.classList.toggle("long", !black && names(found, this.model).length > 12);
    // Of any number of classes there may be none: then the longest says how far away from any it is.
    const least = `at most ${Math.max(...lengths).toFixed(2)}`;
    const sure = found.map((label) => lengths[label].toFixed(2)).join(" and ") || least;
    element("glance").textContent = black ? "" : `It says ${names(found, this.model)} (${sure}).`;
    if (black) {
      setText(prediction, "draw something");
      note.textContent = "The picture is black all over.";
      return;
    }
    setText(prediction, names(found, this.model));
    const right = labels && sameSet(labels, found);
    const truth = labels ? ` · labelled ${names(labels, this.model)} ${right ? "✓" : "✗"}` : "";
    const hardly = found.some((label) => lengths[label] < UNSURE) ? "hardly sure: " : "";
    const more = besides.length
      ? `. This network was trained on ${this.model.objects} and always finds as many; what it takes for the rest: ` +
        besides.map((label) => `${this.model.classes[label]} (${lengths[label].toFixed(2)})`).join(", ")
      : "";
    note.textContent = `${hardly}${this.model.measure} ${sure}${truth}${more}`;
  }

  #several(look, sketch) {
    const { drawing, picture } = this.model;
    const drawn = look.drawings.map(({ label, pixels }) => ({ label, pixels: fromBase64(pixels) }));
    const same = drawing.height === picture.height && drawing.width === picture.width;
    // A reconstruction wears the colour of the digit that it resembles, so pens and answers match.
    const swap = same && drawn.length === 2 && crossed(drawn, [sketch.layerPixels(0), sketch.layerPixels(1)]);
    const only = drawn.length === 1 && !sketch.whole ? sketch.layers.findIndex((layer) => !isEmpty(layer)) : 0;
    drawn.forEach((each, i) => {
      each.tint = layerTint(swap ? 1 - i : i + only);
    });
    const caption = ["redrawn", "redrawn, both"][drawn.length - 1] ?? "redrawn, all";
    element("reconstruction-caption").textContent = caption;
    this.coloured = drawn;
    paintTogether(element("reconstruction"), drawn, drawing);
    element("alone").replaceChildren(
      ...drawn.map(({ label, pixels, tint }) => {
        const figure = document.createElement("figure");
        const canvas = asCanvas(pixels, drawing, tint);
        canvas.className = "picture";
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `The reconstruction of ${this.model.classes[label]} alone`);
        const caption = document.createElement("figcaption");
        caption.textContent = this.model.classes[label];
        figure.style.setProperty("--tint", css(tint));
        figure.append(canvas, caption);
        return figure;
      }),
    );
  }
}

function crossed([a, b], [first, second]) {
  const straight = similarity(a.pixels, first) + similarity(b.pixels, second);
  return similarity(a.pixels, second) + similarity(b.pixels, first) > straight;
}

const sameSet = (a, b) => [...a].sort().join() === [...b].sort().join();
