// Rows of bars for class capsules. Few classes stand in their own order; of many, the longest are shown.

const ALL_UP_TO = 20;
const LONGEST_SHOWN = 12;

/** @returns {number[]} the classes that are shown, in order */
export function shownClasses(lengths) {
  const classes = lengths.map((_, k) => k);
  if (lengths.length <= ALL_UP_TO) return classes;
  return classes.sort((a, b) => lengths[b] - lengths[a]).slice(0, LONGEST_SHOWN);
}

export class Bars {
  /** @param {HTMLElement} list @param {(label: number) => void} choose */
  constructor(list, choose) {
    this.list = list;
    this.choose = choose;
    this.rows = [];
  }

  /** @param {string[]} names of the classes @param {string} measure what a bar shows */
  reset(names, measure) {
    this.names = names;
    this.measure = measure;
    const rows = names.length <= ALL_UP_TO ? names.length : LONGEST_SHOWN;
    this.rows = Array.from({ length: rows }, () => this.#row());
    this.list.replaceChildren(...this.rows.map((row) => row.item));
    this.list.classList.toggle("named", names.some((name) => name.length > 3));
    this.show(names.map(() => 0)); // so that each has its name before there is an answer
  }

  #row() {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    const [name, track, value] = ["name", "track", "value"].map((part) => {
      const span = document.createElement("span");
      span.className = part;
      return span;
    });
    const fill = document.createElement("span");
    fill.className = "fill";
    track.append(fill);
    button.append(name, track, value);
    item.append(button);
    button.addEventListener("click", () => this.choose(Number(button.dataset.class)));
    return { item, button, name, fill, value };
  }

  /** The row of a class, if it is among those shown. */
  button(label) {
    return this.rows.find(({ button }) => Number(button.dataset.class) === label)?.button;
  }

  /**
   * @param {number[]} lengths of all classes
   * @param {{found?: number[], chosen?: ?number, classes?: number[]}} how
   */
  show(lengths, { found = [], chosen = null, classes = shownClasses(lengths) } = {}) {
    classes.forEach((label, i) => {
      const { button, name, fill, value } = this.rows[i];
      const length = Math.max(0, Math.min(1, lengths[label]));
      button.dataset.class = label;
      button.dataset.length = lengths[label];
      button.style.setProperty("--colour", `var(--class-${label})`);
      button.classList.toggle("found", found.includes(label));
      if (chosen !== null) button.setAttribute("aria-pressed", label === chosen);
      button.setAttribute("aria-label", `${this.names[label]}: ${this.measure} ${lengths[label].toFixed(2)}`);
      name.textContent = this.names[label];
      name.title = this.names[label];
      fill.style.transform = `scaleX(${length})`;
      value.textContent = lengths[label].toFixed(2);
    });
  }
}
