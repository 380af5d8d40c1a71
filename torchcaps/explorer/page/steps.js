// What if routing went on? Buttons for more steps than in training.

/** @typedef {import("./api.js").Model} Model */

const LONGER = [10, 20];
const element = (id) => document.getElementById(id);

/**
 * @param {Model} model
 * @param {?number} wanted how many a link asks for, if any
 * @param {(count: ?number) => void} choose null: as many as in training
 * @returns {?number} how many it is now; null also if the model's routing cannot do what was wanted
 */
export function offerSteps(model, wanted, choose) {
  const trained = Math.max(1, model.iterations);
  const longer = LONGER.filter((count) => count > trained && count <= model.most_iterations);
  const chosen = longer.includes(wanted) ? wanted : null;
  element("goes-on").hidden = element("steps").hidden = longer.length === 0;
  element("goes-on").textContent =
    `The network was trained with ${trained} step${trained > 1 ? "s" : ""}; ${longer.join(" and ")} let it go on. ` +
    "What do they change: the answer, or only how decided the parts are?";
  const buttons = [null, ...longer].map((count) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = count ?? trained;
    button.title = count === null ? `${trained} steps, as trained` : `${count} steps`;
    button.setAttribute("aria-label", button.title);
    button.setAttribute("aria-pressed", count === chosen);
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-pressed") === "true") return;
      for (const each of buttons) each.setAttribute("aria-pressed", each === button);
      choose(count);
    });
    return button;
  });
  element("steps").replaceChildren(...buttons);
  return chosen;
}
