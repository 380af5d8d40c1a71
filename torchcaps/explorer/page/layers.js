// The buttons that say which object of several is drawn.

import { css, layerTint } from "./colours.js";

const ORDER = ["First", "Second", "Third", "Fourth"];

/** @param {HTMLElement} box @param {import("./sketch.js").Sketch} sketch */
export function showLayers(box, sketch) {
  const thing = sketch.model.digits ? "digit" : "object";
  const buttons = sketch.layers.map((_, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.id = `layer-${i + 1}`;
    button.textContent = `${ORDER[i] ?? `${i + 1}.`} ${thing}`;
    button.style.setProperty("--tint", css(layerTint(i)));
    button.addEventListener("click", () => sketch.activate(i));
    return button;
  });
  const mark = () => buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === sketch.active));
  sketch.addEventListener("layer", mark);
  mark();
  box.replaceChildren(...buttons);
}
