// A strip of buttons is one stop of the tab key; arrows, Home and End move within it.

const TO = {
  ArrowRight: (at) => at + 1, ArrowLeft: (at) => at - 1, Home: () => 0, End: (_, count) => count - 1,
};

/** @param {HTMLElement} strip whose children are buttons, new ones each time */
export function rove(strip) {
  const buttons = [...strip.children];
  const stopAt = (index) => buttons.forEach((button, i) => button.setAttribute("tabindex", i === index ? 0 : -1));
  stopAt(0);
  buttons.forEach((button, at) => {
    button.addEventListener("focus", () => stopAt(at));
    button.addEventListener("keydown", (event) => {
      const next = buttons[TO[event.key]?.(at, buttons.length)];
      if (!TO[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      next?.focus();
    });
  });
}
