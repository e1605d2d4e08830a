"use strict";
/*
 * Draws what the API gives: an object that comes whole and is then patched. Each section is a
 * function of that object and of what the reader has chosen; it describes its elements, and
 * update() changes those that differ. So focus, selection and what is open stay.
 */
(() => {
  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

  /* what is shown, and what the reader has chosen */
  const page = {
    route: null, job: null, list: null, viewer: {}, error: "", isReport: false,
    live: "", lostAt: 0, skew: 0, output: "", outputNote: "", stacks: "", stacksNote: "",
  };
  const chosen = {
    utc: false, last: 0, range: null, at: null, drag: null, search: "", signs: new Set(), filter: "",
    states: new Set(), measure: "state", node: null, over: null, rows: 0,
    nodeOrder: { by: "", down: false }, jobOrder: { by: "", down: false },
  };

  /* -- elements --------------------------------------------------------------------- */

  const SVG = "http://www.w3.org/2000/svg";
  const ONCE = new Set(["open", "value"]); /* then they are the reader's */

  const isThere = child => child !== null && child !== undefined && child !== false && child !== "";

  /* Characters that would act on the text around them are seen instead. */
  const ACTING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  const plain = text => String(text).replace(ACTING, "\ufffd");

  /* Describes an element. One with a key, or an id, is the same one wherever it stands. */
  function h(tag, attributes, ...children) {
    const { key, ...rest } = attributes || {};
    return { tag, key: key === undefined ? rest.id : key, attributes: rest,
             children: children.flat(Infinity).filter(isThere) };
  }

  function setAttribute(element, name, value, before) {
    if (typeof value === "function") {
      element[name] = value;
    } else if (name === "style") {
      for (const property of Object.keys(value))
        if (!before || before[property] !== value[property])
          element.style.setProperty(property, value[property]);
    } else if (value === before) {
      return;
    } else if (value === null || value === undefined || value === false) {
      element.removeAttribute(name);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }

  /* Makes an element as it is described, within and without. */
  function refresh(element, item) {
    const before = element.shown, attributes = before ? before.attributes : {};
    if (item === before) return;
    for (const name of Object.keys(item.attributes))
      if (!before || !ONCE.has(name))
        setAttribute(element, name, item.attributes[name], attributes[name]);
    for (const name of Object.keys(attributes))
      if (!(name in item.attributes))
        setAttribute(element, name, null, attributes[name]);
    element.shown = item;
    if (before && areSameChildren(before.children, item.children)) refreshChildren(element, item.children);
    else update(element, item.children);
  }

  function refreshNode(node, item) {
    if (typeof item === "object") refresh(node, item);
    else if (node.data !== plain(item)) node.data = plain(item);
  }

  const areSameChildren = (before, after) => before.length === after.length &&
    after.every((item, i) => item.tag === before[i].tag && item.key === before[i].key);

  function refreshChildren(parent, items) {
    let node = parent.firstChild;
    for (const item of items) {
      refreshNode(node, item);
      node = node.nextSibling;
    }
  }

  function createChild(parent, item) {
    if (typeof item !== "object") return document.createTextNode(plain(item));
    const isDrawing = item.tag === "svg" || parent.namespaceURI === SVG;
    return isDrawing ? document.createElementNS(SVG, item.tag) : document.createElement(item.tag);
  }

  function isChildOf(node, item) {
    if (!node || typeof item !== "object") return Boolean(node) && node.nodeType === Node.TEXT_NODE;
    return Boolean(node.shown) && node.shown.tag === item.tag && node.shown.key === item.key;
  }

  /* Makes the children of an element as they are described. */
  function update(parent, items) {
    const keys = new Set(items.map(item => item.key).filter(isThere)), keyed = new Map();
    let next;
    for (const node of [...parent.childNodes])
      if (node.shown && isThere(node.shown.key)) {
        if (keys.has(node.shown.key)) keyed.set(node.shown.key, node);
        else node.remove();
      }
    next = parent.firstChild;
    for (const item of items) {
      let node = isThere(item.key) ? keyed.get(item.key) : next;
      if (!isChildOf(node, item)) node = createChild(parent, item);
      if (node === next) next = next.nextSibling;
      else parent.insertBefore(node, next);
      refreshNode(node, item);
    }
    while (next) {
      const after = next.nextSibling;
      next.remove();
      next = after;
    }
  }

  /* -- numbers ---------------------------------------------------------------------- */

  const digits = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const isNumber = value => typeof value === "number" && Number.isFinite(value);
  const count = value => isNumber(value) ? digits.format(value) : "–";
  const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
  const percent = (share, places = 1) => `${(100 * share).toFixed(places)} %`;
  const within = (value, least, most) => Math.min(Math.max(value, least), most);
  const sum = values => values.reduce((all, value) => all + value, 0);
  const least = values => values.length ? values.reduce((a, b) => Math.min(a, b)) : NaN;
  const most = values => values.length ? values.reduce((a, b) => Math.max(a, b)) : NaN;

  function figure(value) {
    const size = Math.abs(value);
    if (!isNumber(value)) return "–";
    if (size >= 1e6 || (size > 0 && size < 1e-4)) return value.toExponential(2);
    return size >= 1000 ? count(value) : String(Number(value.toPrecision(4)));
  }

  /* As crunctl writes it. */
  function duration(ms) {
    const s = Math.floor(ms / SECOND);
    if (ms < 100) return `${Math.floor(ms)} ms`;
    if (s < 10) return `${s}.${Math.floor(ms % SECOND / 100)} s`;
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.floor(s / 60)} min`;
    if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} m`;
    return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
  }

  const age = ms => ms < 10 * SECOND ? `${Math.max(0, Math.floor(ms / SECOND))} s` : duration(ms);

  /* -- times ------------------------------------------------------------------------ */

  /* Of a report, when it was written. */
  const now = () => page.isReport ? page.viewer.now_ms : Date.now() + page.skew;
  const ago = ms => h("time", { datetime: new Date(ms).toISOString(), title: clock(ms) }, age(now() - ms));
  const zoneShift = ms => chosen.utc ? 0 : -new Date(ms).getTimezoneOffset() * MINUTE;
  const isoOf = ms => new Date(ms + zoneShift(ms)).toISOString();
  const isTime = ms => isNumber(ms) && ms > 0 && ms < 8e15;

  function clock(ms) {
    if (!isTime(ms)) return "–";
    const iso = isoOf(ms), isToday = !page.isReport && iso.slice(0, 10) === isoOf(now()).slice(0, 10);
    return isToday ? iso.slice(11, 19) : `${iso.slice(0, 10)} ${iso.slice(11, 19)}`;
  }

  function zoneName() {
    const minutes = -new Date().getTimezoneOffset(), size = Math.abs(minutes);
    if (chosen.utc || !minutes) return "UTC";
    return `UTC${minutes < 0 ? "−" : "+"}${Math.floor(size / 60)}` + (size % 60 ? `:${size % 60}` : "");
  }

  function time(ms, isAged) {
    if (!isTime(ms)) return "–";
    return h("time", { datetime: new Date(ms).toISOString() }, clock(ms),
             isAged && !page.isReport && small(` (${age(now() - ms)})`));
  }

  /* -- words ------------------------------------------------------------------------ */

  const STATES = {
    running: ["running", "●", "good"], forming: ["waiting", "○", "wait"],
    stopping: ["stopping", "◐", "wait"], restarting: ["restarting", "◐", "wait"],
    success: ["finished", "✓", "done"], user: ["stopped", "■", "off"],
    "not-formed": ["not started", "✗", "bad"], failure: ["failed", "✗", "bad"],
  };
  const ACTIVE = ["running", "forming", "stopping"];
  const SIGNALS = { 1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL",
                    10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 15: "TERM", 24: "XCPU" };
  const FAILURES = {
    exit: f => `exit code ${f.code}`, exec: () => "not executable", lost: () => "lost",
    hang: () => "no progress", agent: () => "crun failed",
    signal: f => SIGNALS[f.code] ? `SIG${SIGNALS[f.code]}` : `signal ${f.code}`,
  };
  const CAUSES = {
    first: "the first", failure: "✗ failure", lost: "! lost node", hang: "✗ hang", none: "",
    "scale-up": "+ more nodes", drain: "− drained node", user: "■ user",
  };

  const isOver = job => !ACTIVE.includes(job.state);
  const nameOf = job => job.name || job.job || "job";

  function stateOf(job) {
    const isLast = (job.result && job.result !== "none") || job.cause === "user";
    const row = job.state === "done" ? STATES[job.result] || STATES.failure
      : job.state === "stopping" && !isLast ? STATES.restarting
        : STATES[ACTIVE.includes(job.state) ? job.state : ""] || [job.state || "unknown", "✗", "bad"];
    return { word: row[0], sign: row[1], class: row[2] };
  }

  const small = (...children) => h("small", null, children);
  const badge = (look, sign) => h("b", { class: `cell ${look}`, "aria-hidden": "true" }, sign);
  const statePill = state => h("span", { class: `state ${state.class}` },
                               h("span", { "aria-hidden": "true" }, state.sign), ` ${state.word}`);

  const pathOf = (job, ...rest) => ["/jobs", encodeURIComponent(job), ...rest].join("/");
  const seesOutput = () => Boolean(page.viewer.sees_output) && !page.isReport;

  function rankLink(rank, text = rank) {
    return seesOutput() ? h("a", { href: pathOf(page.job.job, "ranks", rank) }, text) : String(text);
  }

  /* -- parts ------------------------------------------------------------------------ */

  function section(id, title, ...children) {
    return h("section", { id, "aria-labelledby": `${id}-t` }, h("h2", { id: `${id}-t` }, title), children);
  }

  /* Text that is too wide or too high scrolls by itself, also by the keyboard. */
  const output = (label, text, id) => h("pre", { tabindex: "0", role: "region", "aria-label": label, id }, text);

  function copyButton(text) {
    const label = page.copied === text ? "Copied" : "Copy";
    return h("button", { type: "button", class: "button copy", onclick: () => copyText(text) }, label);
  }

  function copyText(text) {
    const area = document.createElement("textarea"), focused = document.activeElement;
    area.value = text;
    area.className = "skip";
    document.body.append(area);
    area.select();
    page.copied = document.execCommand("copy") ? text : null;
    area.remove();
    if (focused) focused.focus({ preventScroll: true });
    draw();
    setTimeout(() => { page.copied = null; draw(); }, 2 * SECOND);
  }

  function progressBar(share) {
    return h("svg", { class: "progress", viewBox: "0 0 100 1", preserveAspectRatio: "none",
                      "aria-hidden": "true" },
             h("rect", { class: "p0", width: (100 * within(share, 0, 1)).toFixed(1), height: 1 }));
  }

  /* The cells of a row in which a column can be sorted by. */
  function headCells(columns, order) {
    const choose = column => {
      order.down = order.by === column.name ? !order.down : Boolean(column.isNumber);
      order.by = column.name;
      draw();
    };

    return columns.map(column => h("th", {
      key: column.name, scope: "col", class: column.isNumber && !column.isLeft ? "num" : null,
      "aria-sort": order.by === column.name ? (order.down ? "descending" : "ascending") : null,
    }, h("button", { type: "button", class: "sort", onclick: () => choose(column) }, column.name,
         order.by === column.name && h("span", { "aria-hidden": "true" }, order.down ? " ↓" : " ↑"))));
  }

  /* What is not known comes last in both directions. */
  function sortBy(items, columns, order) {
    const column = columns.find(c => c.name === order.by), sign = order.down ? -1 : 1;
    const isKnown = value => typeof value === "string" || isNumber(value);
    if (!column) return items;
    return items.map(item => [column.value(item), item]).sort(([a], [b]) => {
      if (!isKnown(a) || !isKnown(b)) return isKnown(b) - isKnown(a);
      return a < b ? -sign : a > b ? sign : 0;
    }).map(([, item]) => item);
  }

  const numberCell = text => h("td", { class: "num" }, text);
  const headRow = (columns, cell) => h("thead", null, h("tr", null, columns.map(cell)));

  /* A cell with a bar below its text. */
  function meter(share, text) {
    const width = `${Math.round(100 * within(share || 0, 0, 1))}%`;
    return h("td", { class: "num meter", style: { "--share": width } }, text);
  }

  const includesText = (words, text) => words.some(word => String(word || "").toLowerCase().includes(text));

  const scrolling = (label, table) => h("div", { class: "scroll", tabindex: "0", role: "region",
                                                 "aria-label": label }, table);

  const chip = (pressed, onclick, ...children) =>
    h("button", { type: "button", class: "chip", "aria-pressed": String(pressed), onclick }, children);

  function toggle(set, value) {
    if (!set.delete(value)) set.add(value);
  }

  /* An input for a search: "/" goes there, Escape empties it. */
  function searchInput(label, name) {
    const set = text => {
      chosen[name] = text;
      draw();
    };

    return h("label", null, h("span", { class: "unseen" }, label),
             h("input", { type: "search", id: name, placeholder: `${label}  /`, value: chosen[name],
                          oninput: event => set(event.target.value),
                          onkeydown: event => {
                            if (event.key !== "Escape") return;
                            event.target.value = "";
                            set("");
                          } }));
  }

