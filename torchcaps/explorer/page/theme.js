// Chooses light or dark before the first paint, and keeps the choice. A classic script, loaded in the head: a module
// would run after the page was painted once in the other theme.
(() => {
  const KEY = "torchcaps-theme";
  const ORDER = ["auto", "light", "dark"];

  /** Storage may be switched off; then the choice lasts as long as the page. */
  function stored() {
    try {
      const value = localStorage.getItem(KEY);
      return ORDER.includes(value) ? value : "auto";
    } catch {
      return "auto";
    }
  }

  let theme = stored();

  function apply() {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  }

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // not kept, but applied
      }
      apply();
    });
  });
})();
