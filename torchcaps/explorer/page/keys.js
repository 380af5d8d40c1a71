// Keyboard shortcuts of the whole page. They are silent while a control that takes keys itself has the focus.

const KEY = "torchcaps-shortcuts";

/** Storage may be forbidden; then the choice lasts as long as the page. */
function stored() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}

let letters = stored();

/** @param {Record<string, (event: KeyboardEvent) => void>} actions by key */
export function listenToKeys(actions) {
  addEventListener("keydown", (event) => {
    if (event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key === "z" && !event.shiftKey) actions.z?.(event);
      return;
    }
    // those who speak to their computer press letters without meaning it
    if (!letters && event.key.length === 1) return;
    const { target } = event;
    const typing = target.closest?.("select, textarea, input:not([type=checkbox], [type=range], [type=file])");
    const sliding = target.type === "range" && (event.key.startsWith("Arrow") || /\d/.test(event.key));
    if ((typing || sliding) && event.key !== "Escape") return;
    actions[event.key]?.(event);
  });
}

/** The dialog that lists them. */
export function helpDialog() {
  const dialog = document.getElementById("shortcuts");
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  document.getElementById("shortcuts-close").addEventListener("click", () => dialog.close());
  const box = document.getElementById("shortcuts-on");
  box.checked = letters;
  box.addEventListener("change", () => {
    letters = box.checked;
    try {
      localStorage.setItem(KEY, letters ? "on" : "off");
    } catch {
      // not kept, but applied
    }
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return () => dialog.showModal();
}
