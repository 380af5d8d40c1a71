// The line about a model, and the words that depend on what kind of capsules it has.

const element = (id) => document.getElementById(id);

/** @param {import("./api.js").Model} model */
export function showAbout({ architecture, parameters, routing, iterations, measure, card }) {
  const size = `${parameters.toLocaleString("en")} parameters`;
  const parts = [architecture, size, `${routing} routing\u00a0×\u00a0${iterations}`];
  if (card) parts.push(`${Number(card.test_error_percent.toFixed(2))} % test error`);
  element("model-about").textContent = parts.join(" · ");
  element("model-card").hidden = !card;
  element("model-command").textContent = card?.command ?? "";
  element("model-training").textContent = card ? `seed ${card.seed}, ${minutes(card.training_minutes)}` : "";
  for (const each of document.querySelectorAll("[data-words]")) each.hidden = each.dataset.words !== measure;
}

function minutes(time) {
  const rounded = Math.max(1, Math.round(time));
  return `${rounded} ${rounded === 1 ? "minute" : "minutes"} of training`;
}
