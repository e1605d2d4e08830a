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

  /* -- head and failure --------------------------------------------------------------- */

  function sizeFact(job) {
    const { node_count: nodes, worker_count: workers, spare_count: spares, min_nodes: fewest,
            max_nodes: all } = job;
    const isRange = all && (fewest !== all || nodes !== all);
    if (!nodes && (!all || isOver(job))) return "";
    return (workers ? `${plural(workers, "worker")} on ` : "") + plural(nodes || 0, "node") +
      (spares ? ` + ${plural(spares, "spare")}` : "") +
      (isRange ? ` of ${fewest === all ? count(all) : `${count(fewest)} to ${count(all)}`}` : "");
  }

  function headFacts(job) {
    return [
      job.epoch && `epoch ${count(job.epoch)}`,
      sizeFact(job),
      isNumber(job.restarts) && `${count(job.restarts)} of ${plural(job.max_restarts, "restart")}`,
      job.started_ms && ["started ", time(job.started_ms, true)],
      isNumber(job.exit_code) && `exit code ${job.exit_code}`,
      job.program && job.program !== job.name && job.program,
      job.job !== job.name && ["run id ", h("code", null, job.job)],
    ].filter(fact => fact && fact.length);
  }

  function headSection(job) {
    const state = stateOf(job), isRunning = state.word === "running";
    return h("section", { id: "head", "aria-label": "State" },
             h("h1", null, (page.isReport ? "Report of job " : "") + nameOf(job)),
             h("p", { class: "now" }, h("span", { "aria-live": "polite" }, statePill(state)),
               isNumber(job.state_ms) && [" since ", time(stateBegan(job), true)],
               page.isReport && !isOver(job) && ` when this was written, at ${clock(now())}`),
             job.text && !isOfFailure(job) &&
               h("p", { class: "why" }, (isRunning ? "last restart: " : "") + job.text),
             job.notice && h("p", { class: "why" }, job.notice),
             h("ul", { class: "facts" }, headFacts(job).map(fact => h("li", null, fact))));
  }

  const stateBegan = job => job.ended_ms || (job.started_ms + job.age_ms - job.state_ms);

  function failureFacts(f) {
    const isOfRank = f.kind !== "lost", what = FAILURES[f.kind];
    return [
      isOfRank && ["rank", [rankLink(f.rank), small(` local rank ${f.local_rank}, pid ${f.pid}`)]],
      f.host && ["node", f.host],
      f.time_ms && ["when", time(f.time_ms)],
      ["what", what ? what(f) : f.kind],
      f.log && ["log", h("code", null, f.log)],
    ].filter(Boolean);
  }

  function failureText(job) {
    const f = job.failure || {};
    return [
      job.failure && h("dl", { class: "facts" }, failureFacts(f).map(([term, text]) =>
        h("div", { key: term }, h("dt", null, term), h("dd", null, text)))),
      f.said && h("div", { class: "copied" }, output("What it said last", f.said), copyButton(f.said)),
      job.report && h("details", { open: page.isReport }, h("summary", null, "The whole report"),
                      h("div", { class: "copied" }, output("The whole report", job.report),
                        copyButton(job.report))),
    ];
  }

  const isOfFailure = job => job.cause === "failure" && Boolean(job.failure) && !isOver(job);

  /* If the job went on after it, one line of it is enough. */
  function failureSection(job) {
    const f = job.failure;
    if (!f && !job.report) return null;
    if ((isOver(job) && stateOf(job).class === "bad") || !f)
      return h("section", { id: "failure", class: "alarm", "aria-labelledby": "failure-t" },
               h("h2", { id: "failure-t" }, "First failure"), failureText(job));
    const words = [f.kind !== "lost" && `rank ${f.rank}`, f.host, (FAILURES[f.kind] || (() => f.kind))(f)];
    const text = isOfFailure(job) && job.text ? job.text : words.filter(Boolean).join(" · ");
    return h("section", { id: "failure-before", "aria-labelledby": "failure-t" },
             h("details", null, h("summary", { id: "failure-t" }, h("b", null, "Latest failure"), ` ${text} `,
                                  small("at ", time(f.time_ms, true))), failureText(job)));
  }

  /* -- figures ------------------------------------------------------------------------ */

  const curveOf = job => (job.history && job.history.curve) || {};
  const epochsOf = job => (job.history && job.history.epochs) || [];
  const newestOf = (job, name) => (curveOf(job)[name] || []).filter(isNumber).pop();
  /* Of a job that runs, the newest point may be of the epoch before. */
  const lastOf = (job, name) => job.state === "running" ? undefined : newestOf(job, name);

  function jobLoss(job, nodes) {
    const first = nodes.find(n => n.group_rank === 0 && isNumber(n.loss)) || nodes.find(n => isNumber(n.loss));
    return first ? first.loss : lastOf(job, "loss");
  }

  function jobRate(job, nodes) {
    const rates = nodes.filter(n => isNumber(n.group_rank) && n.step).map(n => n.steps_per_s).filter(isNumber);
    return rates.length ? least(rates) : lastOf(job, "steps_per_s");
  }

  function tile(what, value, more, below) {
    return h("div", { key: what }, h("dt", null, what),
             h("dd", null, value), more && h("dd", null, small(more)),
             below && h("dd", { class: "below" }, below));
  }

  function stepTile(job, step) {
    if (!job.steps)
      return tile("Step", step ? count(step) : "–",
                  job.state === "running" && !step ? "the workers report none" : "");
    const share = within(step / job.steps, 0, 1);
    return tile("Step", step ? count(step) : "–", `of ${count(job.steps)}` + (step ? ` · ${percent(share)}` : ""),
                progressBar(share));
  }

  const GIB = 1024;

  /* The mean of the use, the fullest and the hottest GPU, and the power of all; a node gives the same of its own. */
  function gpuTotals(nodes) {
    const gpus = nodes.map(n => n.gpus).filter(g => g && g.count), known = gpus.filter(g => isNumber(g.percent));
    if (!gpus.length) return null;
    const fullest = gpus.reduce((a, b) => b.used_mib > a.used_mib ? b : a);
    return {
      gpu_percent: sum(known.map(g => g.percent * g.count)) / sum(known.map(g => g.count)),
      gpu_used_mib: fullest.used_mib, total_mib: fullest.total_mib, celsius: most(gpus.map(g => g.celsius)),
      gpu_watts: sum(gpus.map(g => g.watts)), count: sum(gpus.map(g => g.count)),
    };
  }

  const gpuTiles = gpus => gpus ? [
    tile("GPU use", isNumber(gpus.gpu_percent) ? `${gpus.gpu_percent.toFixed(0)} %` : "–",
         `of ${plural(gpus.count, "GPU")}`),
    tile("GPU memory", percent(gpus.gpu_used_mib / Math.max(gpus.total_mib, 1), 0),
         "of the fullest GPU"),
    tile("GPU power", `${figure(gpus.gpu_watts / 1000)} kW`, `hottest ${count(gpus.celsius)} °C`),
  ] : [];

  function figuresSection(job, nodes) {
    const isRunning = job.state === "running", step = job.step || lastOf(job, "step") || 0;
    const rate = jobRate(job, nodes), loss = jobLoss(job, nodes);
    const left = isRunning && job.steps > step && step ? (job.steps - step) / rate * SECOND : NaN;
    const saved = least(nodes.map(n => n.checkpoint_age_ms).filter(isNumber));
    const inMemory = least(nodes.filter(n => isNumber(n.group_rank)).map(n => n.memory && n.memory.step || 0));
    return h("section", { id: "figures", "aria-label": "Progress" }, h("dl", { class: "tiles" },
      (step > 0 || isRunning) && stepTile(job, step),
      isNumber(rate) && isRunning && tile("Rate", figure(rate), "steps/s"),
      left < 1e13 && tile("Time left", duration(left)),
      isNumber(loss) && tile("Loss", figure(loss)),
      isNumber(job.goodput) && tile("Goodput", percent(within(job.goodput, 0, 1)),
                                    step || newestOf(job, "step") ? "new steps" : "workers ran"),
      isNumber(saved) && !isOver(job) && !page.isReport && tile("Checkpoint", `${age(saved)} ago`),
      inMemory > 0 && isRunning && tile("In memory", count(inMemory), "step"),
      gpuTiles(gpuTotals(nodes))));
  }

  /* -- curves: points ----------------------------------------------------------------- */

  const CURVES = [
    { name: "loss", title: "Loss", unit: "" },
    { name: "steps_per_s", title: "Rate", unit: "steps/s", isFromZero: true },
    { name: "gpu_percent", title: "GPU use", unit: "%", isFromZero: true, most: 100 },
    { name: "gpu_used_mib", title: "Memory of the fullest GPU", unit: "GiB", isFromZero: true, factor: 1 / GIB },
    { name: "gpu_watts", title: "Power of all GPUs", unit: "kW", isFromZero: true, factor: 1 / 1000 },
    { name: "nodes", title: "Nodes", unit: "", isFromZero: true, isWhole: true },
  ];
  const CUTS_MAX = 24, LOG_RATIO = 100;

  function pointsOfEpochs(job) {
    return epochsOf(job).filter(e => e.formed_ms && e.nodes).flatMap(e =>
      [[e.formed_ms, e.nodes], [e.ended_ms || now(), e.nodes]]);
  }

  /* [time, value], in order */
  function curvePoints(job, curve) {
    const { time_ms: times = [], [curve.name]: values = [] } = curveOf(job), factor = curve.factor || 1;
    const drawable = value => within(value * factor, -1e300, 1e300); /* their differences are numbers */
    const points = curve.name === "nodes" ? pointsOfEpochs(job)
      : values.map((value, i) => [times[i], isNumber(value) ? drawable(value) : NaN]);
    return points.filter(([at]) => isTime(at));
  }

  const isWorthACurve = (curve, points) => points.filter(([, value]) => isNumber(value)).length > 1 &&
    (curve.name !== "nodes" || new Set(points.map(([, value]) => value)).size > 1);

  function wholeRange(job) {
    const times = (curveOf(job).time_ms || []).filter(isTime);
    return [times[0], times[times.length - 1]];
  }

  function shownRange(job) {
    const [from, to] = wholeRange(job);
    if (chosen.range) return chosen.range;
    return chosen.last ? [Math.max(from, to - chosen.last), to] : [from, Math.max(to, from + 1)];
  }

  /* -- curves: axes ------------------------------------------------------------------- */

  /* 1, 2 or 5 times a power of ten, not less than x */
  function roundUp(x) {
    const power = 10 ** Math.floor(Math.log10(x) + 1e-9), digit = x / power;
    return (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
  }

  /* Values that differ by much are shown by their logarithm. */
  function valueAxis(curve, values) {
    const low = curve.isFromZero ? Math.min(0, least(values)) : least(values);
    let high = Math.max(most(values), curve.most || -Infinity);
    if (!curve.isFromZero && low > 1e-300 && high / low >= LOG_RATIO) {
      const from = Math.floor(Math.log10(low) + 1e-9), to = Math.max(Math.ceil(Math.log10(high) - 1e-9), from + 1);
      const each = Math.ceil((to - from) / 5), divisions = Math.ceil((to - from) / each);
      return { low: from, high: from + divisions * each, divisions, isLog: true };
    }
    if (high - low < Math.abs(high) * 1e-6 || high <= low) high = low + Math.max(Math.abs(low) * 0.01, 1e-9);
    const each = roundUp((high - low) / 4), from = Math.floor(low / each + 1e-9) * each;
    const divisions = Math.max(1, Math.ceil((high - from) / each - 1e-9));
    return { low: from, high: from + divisions * each, divisions, isLog: false };
  }

  function axisTicks(axis) {
    return Array.from({ length: axis.divisions + 1 }, (_, i) => {
      const at = axis.low + i * (axis.high - axis.low) / axis.divisions;
      return { y: 100 * (1 - i / axis.divisions), text: figure(axis.isLog ? 10 ** at : Number(at.toPrecision(6))) };
    });
  }

  const heightOf = (axis, value) =>
    100 * (1 - ((axis.isLog ? Math.log10(value) : value) - axis.low) / (axis.high - axis.low));

  const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
                   86400, 172800, 604800, 2592000];

  function timeTicks([from, to]) {
    const step = SECOND * (TICKS_S.find(s => (to - from) / s <= 5 * SECOND) || 31536000);
    const shift = zoneShift(from), ticks = [];
    for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) {
      const iso = isoOf(at), x = 100 * (at - from) / (to - from);
      const isDay = step >= DAY || iso.slice(11, 19) === "00:00:00";
      ticks.push({ at, x, text: isDay ? iso.slice(5, 10) : iso.slice(11, step >= MINUTE ? 16 : 19) });
    }
    return ticks;
  }

  /* -- curves: pictures ----------------------------------------------------------------- */

  const xOf = (at, [from, to]) => 1000 * (at - from) / (to - from);

  function restartsIn(job, [from, to]) {
    return epochsOf(job).slice(1).filter(e => e.begun_ms > from && e.begun_ms < to);
  }

  /* Where a restart is drawn, no line leads over it. */
  function linePath(points, range, axis, cuts) {
    let path = "", before = null;
    for (const [at, value] of points) {
      if (!isNumber(value)) continue;
      const isCut = before !== null && cuts.some(e => e.begun_ms > before && e.begun_ms <= at);
      const x = xOf(at, range).toFixed(1), y = heightOf(axis, value).toFixed(2);
      path += before === null || isCut ? `M${x} ${y}h0` : `L${x} ${y}`;
      before = at;
    }
    return path;
  }

  /* Those within the range, and one on each side, to which the line leads. */
  function pointsIn(points, [from, to]) {
    const first = points.findIndex(([at]) => at >= from), after = points.findIndex(([at]) => at > to);
    if (first < 0) return [];
    return points.slice(Math.max(first - 1, 0), after < 0 ? points.length : after + 1);
  }

  function nearestPoint(points, at) {
    return points.reduce((best, point) =>
      isNumber(point[1]) && (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at)) ? point : best, null);
  }

  function stepAt(job, at) {
    const { time_ms: times = [], step = [] } = curveOf(job), i = times.indexOf(at);
    return i >= 0 && step[i] ? `, step ${count(step[i])}` : "";
  }

  function plotPicture(view) {
    const { points, range, axis, cuts, mark } = view, drag = chosen.drag;
    const line = (look, d) => h("path", { key: look, class: look, d: d || "M0 0" });
    const upright = xs => xs.map(x => `M${x.toFixed(1)} 0V100`).join("");
    const at = mark && xOf(mark[0], range).toFixed(1);
    return h("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      line("grid", axisTicks(axis).map(tick => `M0 ${tick.y.toFixed(2)}H1000`).join("")),
      line("grid faint", upright(timeTicks(range).map(tick => 10 * tick.x))),
      line("cut", upright(cuts.map(e => xOf(e.begun_ms, range)))),
      line("line", linePath(points, range, axis, view.isWhole ? [] : cuts)),
      drag && h("rect", { key: "drag", class: "drag", y: 0, height: 100, x: Math.min(...drag),
                          width: Math.abs(drag[1] - drag[0]) }),
      view.isMarked && line("at", `M${at} 0V100`),
      mark && line("dot", `M${at} ${heightOf(axis, mark[1]).toFixed(2)}h0`));
  }

  /* The value under the pointer or the newest one, and between which all are. */
  function plotCaption(job, curve, view) {
    const { values, axis, mark, isMarked } = view, unit = curve.unit && ` ${curve.unit}`;
    return h("figcaption", null, h("h3", null, curve.title), " ",
             h("b", null, mark ? figure(mark[1]) + unit : "–"),
             small(isMarked
               ? ` at ${clock(mark[0])}${stepAt(job, mark[0])}`
               : ` ${figure(least(values))} to ${figure(most(values))}${axis.isLog ? ", logarithmic" : ""}`));
  }

  function plot(job, curve, all, range) {
    const points = pointsIn(all, range), values = points.map(([, value]) => value).filter(isNumber);
    const restarts = restartsIn(job, range);
    const known = points.filter(([at, value]) => at >= range[0] && at <= range[1] && isNumber(value));
    const isMarked = chosen.at !== null && chosen.at >= range[0] && chosen.at <= range[1];
    const view = { points, values, range, isMarked, isWhole: curve.isWhole,
                   axis: valueAxis(curve, values.length ? values : [0, 1]),
                   cuts: restarts.length <= CUTS_MAX ? restarts : [],
                   mark: isMarked ? nearestPoint(known, chosen.at) : known[known.length - 1] || null };
    if (!view.mark) view.isMarked = false;
    const text = view.mark ? `${figure(view.mark[1])} ${curve.unit} at ${clock(view.mark[0])}` : "nothing";
    return h("figure", { key: curve.name, class: "curve" }, plotCaption(job, curve, view),
      h("div", { class: "plot" },
        h("div", { class: "ys", "aria-hidden": "true" }, axisTicks(view.axis).map(tick =>
          h("span", { style: { top: `${tick.y}%` } }, tick.text))),
        h("div", { class: "canvas", tabindex: "0", role: "slider", "aria-label": `${curve.title} over time`,
                   "aria-valuemin": 0, "aria-valuemax": Math.max(known.length - 1, 0),
                   "aria-valuenow": Math.max(known.indexOf(view.mark), 0), "aria-valuetext": text,
                   onpointermove: event => onPlotMove(event, range), onpointerleave: onPlotLeave,
                   onpointerdown: event => onPlotDown(event, range), onpointerup: event => onPlotUp(event, range),
                   ondblclick: () => chooseRange(null), onblur: onPlotLeave,
                   onkeydown: event => onPlotKey(event, known, range) },
          plotPicture(view))),
      h("div", { class: "xs", "aria-hidden": "true" }, timeTicks(range).map(tick => tick.x > 3 && tick.x < 97 &&
        h("span", { style: { left: `${tick.x}%` } }, tick.text))));
  }

  /* -- curves: pointer and keys ----------------------------------------------------------- */

  function chooseRange(range, last = 0) {
    Object.assign(chosen, { range, last, drag: null });
    draw();
  }

  function plotX(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return within((event.clientX - box.left) / box.width, 0, 1);
  }

  function onPlotMove(event, [from, to]) {
    const x = plotX(event);
    chosen.at = from + x * (to - from);
    if (chosen.drag) chosen.drag = [chosen.drag[0], 1000 * x];
    draw();
  }

  function onPlotLeave() {
    if (chosen.at === null || chosen.drag) return;
    chosen.at = null;
    draw();
  }

  function onPlotDown(event) {
    if (event.button || event.pointerType === "touch") return;
    event.currentTarget.setPointerCapture(event.pointerId);
    chosen.drag = [1000 * plotX(event), 1000 * plotX(event)];
  }

  function onPlotUp(event, [from, to]) {
    const [x, y] = (chosen.drag || [0, 0]).slice().sort((a, b) => a - b);
    chosen.drag = null;
    if (y - x < 10) draw();
    else chooseRange([from + x / 1000 * (to - from), from + y / 1000 * (to - from)]);
  }

  /* To the points before and after, closer and farther. */
  function onPlotKey(event, known, [from, to]) {
    const at = known.indexOf(nearestPoint(known, chosen.at === null ? Infinity : chosen.at));
    const centre = chosen.at === null ? (from + to) / 2 : chosen.at;
    const zoom = factor => chooseRange([centre - (centre - from) * factor, centre + (to - centre) * factor]);
    const moves = { ArrowLeft: chosen.at === null ? known.length - 1 : at - 1, ArrowRight: at + 1, Home: 0,
                    End: known.length - 1 };
    if (event.key in moves && known.length) {
      chosen.at = known[within(moves[event.key], 0, known.length - 1)][0];
      draw();
    } else if (event.key === "+" || event.key === "=") {
      zoom(0.5);
    } else if (event.key === "-") {
      zoom(2);
    } else if (event.key === "Escape" || event.key === "0") {
      chosen.at = null;
      chooseRange(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  const RANGES = [[5 * MINUTE, "5 min"], [30 * MINUTE, "30 min"], [3 * HOUR, "3 h"], [DAY, "1 day"]];

  function rangeChips(job) {
    const [from, to] = wholeRange(job), useful = RANGES.filter(([ms]) => ms < to - from);
    if (!useful.length && !chosen.range) return null;
    return h("div", { class: "chips", role: "group", "aria-label": "Time range" },
             useful.map(([ms, text]) => chip(!chosen.range && chosen.last === ms, () => chooseRange(null, ms), text)),
             chip(!chosen.range && !chosen.last, () => chooseRange(null), "All"),
             chosen.range && h("span", { class: "note" }, `${clock(chosen.range[0])} to ${clock(chosen.range[1])}`));
  }

  function curvesSection(job) {
    const curves = CURVES.map(curve => [curve, curvePoints(job, curve)])
      .filter(([curve, points]) => isWorthACurve(curve, points));
    if (!curves.length || !isTime(wholeRange(job)[0])) return null;
    return h("section", { id: "curves", "aria-labelledby": "curves-t" },
             h("div", { class: "bar-of-tools" }, h("h2", { id: "curves-t" }, "Curves"), rangeChips(job),
               h("span", { class: "note hint" }, "drag to zoom, double-click for all; keys: ← → + − 0")),
             h("div", { class: "curves" },
               curves.map(([curve, points]) => plot(job, curve, points, shownRange(job)))));
  }

  /* -- where the time went -------------------------------------------------------------- */

  const PHASES = [
    ["productive_ms", "productive", "new steps", "p0"],
    ["detect_ms", "detect", "until the failure was known", "p1"],
    ["stop_ms", "stop", "until all workers were gone", "p2"],
    ["form_ms", "form", "until enough nodes were there", "p3"],
    ["start_ms", "start", "until all workers ran", "p4"],
    ["first_step_ms", "first step", "until the first step", "p5"],
    ["rework_ms", "rework", "steps done again", "p6"],
  ].map(([name, word, what, look]) => ({ name, word, what, look }));

  /* The phases of a job or an epoch; where it is not known which steps are new, what ran. */
  function timesOf(object, lost = object) {
    const isUnplaced = object && object.productive_ms === null;
    const ms = PHASES.map(({ name }, i) =>
      (i ? lost && lost[name] : object && (isUnplaced ? object.ran_ms : object[name])) || 0);
    return { ms, isUnplaced, all: sum(ms), lost: sum(ms.slice(1)), again: (lost && lost.steps_again) || 0 };
  }

  function phaseBar(times, title) {
    let x = 0;
    const label = `${title}: ` + PHASES.map((phase, i) => times.ms[i] && `${phase.word} ${duration(times.ms[i])}`)
      .filter(Boolean).join(", ");
    return h("svg", { class: "bar", role: "img", "aria-label": label, viewBox: "0 0 100 1",
                      preserveAspectRatio: "none" },
             PHASES.map((phase, i) => {
               const width = 100 * times.ms[i] / times.all, at = x;
               x += width;
               return width >= 0.05 && h("rect", { key: phase.name, class: phase.look, x: at.toFixed(2),
                                                     width: width.toFixed(2), height: 1 });
             }));
  }

  function phaseRow(phase, i, all, last) {
    const isTraining = all.isUnplaced && !i, ms = all.ms[i], share = ms / all.all;
    return h("tr", { key: phase.name },
             h("th", { scope: "row" }, h("svg", { class: "key", viewBox: "0 0 1 1", "aria-hidden": "true" },
                                         h("rect", { class: phase.look, width: 1, height: 1 })),
               isTraining ? "training" : phase.word,
               small(isTraining ? " new steps, and steps done again" : ` ${phase.what}`)),
             h("td", { class: "num" }, ms ? duration(ms) : "–"),
             meter(share, ms ? percent(share) : ""),
             last && h("td", { class: "num" }, i && last.ms[i] ? duration(last.ms[i]) : "–"));
  }

  function timeSection(job) {
    const all = timesOf(job.time), last = job.last_restart && timesOf(job.last_restart);
    const epoch = epochsOf(job).slice(-1)[0], newest = epoch && timesOf(epoch, epoch.lost);
    if (!all.all) return null;
    return section("time", "Where the time went",
      h("h3", null, "Since the start"), phaseBar(all, "Since the start"),
      newest && newest.all > 0 && newest.all < all.all &&
        [h("h3", null, "The newest epoch"), phaseBar(newest, "The newest epoch")],
      h("table", { class: "wide" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Phase"),
                           h("th", { scope: "colgroup", colspan: 2, class: "num" }, "Since the start"),
                           last && h("th", { scope: "col", class: "num" }, "Last restart"))),
        h("tbody", null, PHASES.map((phase, i) =>
          !(all.isUnplaced && phase.name === "rework_ms") && phaseRow(phase, i, all, last)))),
      all.again > 0 && !all.isUnplaced && h("p", { class: "note" }, `${plural(all.again, "step")} were done again.`));
  }

  /* -- epochs ----------------------------------------------------------------------------- */

  const OPEN_EPOCHS = 8, STRIP_NUMBER = 30, SEGMENT_MIN = 1.5;

  /* What still runs ends a little in the future, so that the strip seldom changes. */
  function stripRange(epochs) {
    const from = epochs[0].begun_ms, end = epochs[epochs.length - 1].ended_ms;
    let part = SECOND;
    if (end) return [from, Math.max(end, from + 1)];
    while (part * 200 < now() - from) part *= 2;
    return [from, from + Math.ceil(Math.max(now() - from, 1) / part) * part];
  }

  function stripPath(epochs, range, phase) {
    let path = "";
    for (const epoch of epochs) {
      const ms = timesOf(epoch, epoch.lost).ms, ordered = [...ms.slice(1), ms[0]];
      const at = (phase + PHASES.length - 1) % PHASES.length;
      const x = xOf(epoch.begun_ms + sum(ordered.slice(0, at)), range);
      const width = !phase && !epoch.ended_ms ? 1000 - x : 1000 * ms[phase] / (range[1] - range[0]);
      if (ms[phase] && x < 1000) path += `M${x.toFixed(1)} 0h${within(width, SEGMENT_MIN, 1000 - x).toFixed(1)}`;
    }
    return path;
  }

  function stripNumbers(epochs, range) {
    let free = 0;
    return epochs.map(epoch => {
      const x = xOf(epoch.begun_ms, range);
      if (x < free || x > 1000 - STRIP_NUMBER) return null;
      free = x + STRIP_NUMBER;
      return h("text", { key: epoch.epoch, x: `${(x / 10).toFixed(1)}%`, y: 12 }, count(epoch.epoch));
    });
  }

  function epochStrip(epochs) {
    const range = stripRange(epochs);
    return [
      h("svg", { class: `strip${epochs.length > 10 ? " many" : ""}`, width: "100%", height: 40, role: "img",
                 "aria-label": `${plural(epochs.length, "epoch")} as a strip; the table below has their phases` },
        h("svg", { y: 18, width: "100%", height: 20, viewBox: "0 0 1000 1", preserveAspectRatio: "none" },
          h("path", { class: "empty", d: "M0 0h1000v1h-1000z" }),
          PHASES.map((phase, i) => h("path", { class: `s ${phase.look}`, d: `M0 0${stripPath(epochs, range, i)}` }))),
        stripNumbers(epochs, range)),
      h("div", { class: "ends", "aria-hidden": "true" }, range.map(end => h("span", null, clock(end)))),
    ];
  }

  function lostText(times) {
    return PHASES.slice(1).map((phase, i) => times.ms[i + 1] &&
      `${phase.word} ${duration(times.ms[i + 1])}` +
      (phase.name === "rework_ms" && times.again ? ` (${count(times.again)} steps)` : "")).filter(Boolean).join(", ");
  }

  function epochRow(epoch) {
    const times = timesOf(epoch, epoch.lost), cause = CAUSES[epoch.cause];
    return h("tr", { key: epoch.epoch }, h("th", { scope: "row", class: "num" }, count(epoch.epoch)),
             h("td", null, time(epoch.begun_ms)),
             h("td", null, cause === undefined ? epoch.cause : cause, small(epoch.text && ` ${epoch.text}`)),
             h("td", null, times.lost ? [duration(times.lost), small(` ${lostText(times)}`)] : "–"),
             h("td", { class: "num" }, times.ms[0] ? duration(times.ms[0]) : "–"),
             h("td", { class: "num" }, epoch.nodes ? count(epoch.nodes) : "–"),
             h("td", { class: "num" }, epoch.workers ? count(epoch.workers) : "–"));
  }

  const EPOCH_HEADS = [["Epoch", "num"], ["Began"], ["Cause"], ["Lost"], ["Productive", "num"], ["Nodes", "num"],
                       ["Workers", "num"]];

  function epochTable(epochs) {
    return scrolling("Table of epochs", h("table", { class: "epochs wide" },
      headRow(EPOCH_HEADS, ([text, look]) => h("th", { scope: "col", class: look }, text)),
      h("tbody", null, epochs.slice().reverse().map(epochRow))));
  }

  function epochsSection(job) {
    const epochs = epochsOf(job), leftOut = job.history && job.history.epochs_left_out;
    const older = Math.max(0, epochs.length - OPEN_EPOCHS);
    if (!epochs.length) return null;
    return section("epochs", "Epochs", epochStrip(epochs), epochTable(epochs.slice(older)),
      older > 0 && h("details", null, h("summary", null, plural(older, "older epoch")),
                     epochTable(epochs.slice(0, older))),
      leftOut > 0 && h("p", { class: "note" }, `${count(leftOut)} more in between are not kept.`));
  }

  /* -- events ------------------------------------------------------------------------------- */

  const OPEN_EVENTS = 14;

  function eventItem(event) {
    const node = event.host || event.node;
    return h("li", { key: event.number }, time(event.time_ms), h("b", null, event.kind), h("span", null,
      node && !String(event.text).includes(node) && `${node} `, event.text,
      isNumber(event.rank) && seesOutput() && [" ", rankLink(event.rank, "output")]));
  }

  function eventsSection(job, isShown = () => true) {
    const events = ((job.history && job.history.events) || []).filter(isShown).reverse();
    const older = events.length - OPEN_EVENTS;
    if (!events.length) return null;
    return section("events", "Newest events",
      h("ul", { class: "events" }, events.slice(0, OPEN_EVENTS).map(eventItem)),
      older > 0 && h("details", null, h("summary", null, plural(older, "older event")),
                     h("ul", { class: "events" }, events.slice(OPEN_EVENTS).map(eventItem))));
  }

  /* -- nodes: what is wrong with them ---------------------------------------------------------- */

  /* The worst first. */
  const SIGNS = [
    ["lost", "!", "bad", "lost"], ["quarantined", "q", "bad", "quarantined"],
    ["xid", "x", "bad", "with a GPU error"], ["behind", "<", "wait", "behind"], ["slow", "▲", "wait", "slow"],
    ["unknown", "?", "wait", "unknown"], ["leaving", "l", "wait", "leaving"],
    ["stopping", "■", "off", "stopping or stopped"], ["starting", "s", "wait", "starting"],
    ["waiting", "w", "off", "waiting"], ["spare", "+", "off", "spare"], ["running", "·", "good", "running"],
    ["finished", "✓", "done", "finished"],
  ].map(([name, sign, look, word], worst) => ({ name, sign, look, word, worst }));
  const SIGN = Object.fromEntries(SIGNS.map(sign => [sign.name, sign]));
  const SLOW_FACTOR = 1.2, BEHIND_SECONDS = 5, SILENT_MS = 5 * SECOND;

  function signOf(node, behind) {
    const named = { done: "finished", stopped: "stopping" }[node.state] || node.state;
    const sign = SIGN[named] || SIGN.unknown;
    if (sign === SIGN.finished) return sign;
    if (node.connected === false) return SIGN.lost;
    if (node.xid && sign.worst > SIGN.xid.worst) return SIGN.xid;
    if (sign === SIGN.running && behind) return SIGN.behind;
    return sign === SIGN.running && node.slowness >= SLOW_FACTOR ? SIGN.slow : sign;
  }

  /* Where it is now, if it goes on as fast: what nodes have told differs in age. */
  const stepTold = node => isNumber(node.group_rank) && node.step ? node.step : 0;
  const stepNow = node => stepTold(node) && node.step + (node.steps_per_s || 0) * (node.heard_ms_ago || 0) / SECOND;

  const sortableName = text => String(text).replace(/\d+/g, number => number.padStart(9, "0"));

  function viewNodes(nodes) {
    const front = most([0, ...nodes.map(stepTold)]); /* one that is silent may go on no more */
    const rate = most([0, ...nodes.filter(stepTold).map(n => n.steps_per_s || 0)]);
    const numbers = new Map();
    return nodes.map(node => {
      const behind = stepNow(node) ? Math.floor(front - stepNow(node)) : 0;
      const number = numbers.get(node.host) || 0;
      const lag = behind > BEHIND_SECONDS * rate + 1 ? behind : 0;
      numbers.set(node.host, number + 1);
      return { node, key: `${node.host} ${number}`, lag, sign: signOf(node, lag), name: sortableName(node.host) };
    }).sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  }

  const hasRank = (node, rank) =>
    isNumber(node.first_rank) && rank >= node.first_rank && rank < node.first_rank + node.workers;
  const gpuShare = node => node.gpus && node.gpus.total_mib ? node.gpus.used_mib / node.gpus.total_mib : NaN;
  const gpuValue = (node, name) => node.gpus && isNumber(node.gpus[name]) ? node.gpus[name] : NaN;

  const MEASURES = [
    { name: "state", title: "state" },
    { name: "slowness", title: "time per step", show: x => `${x.toFixed(2)} ×`, value: n => n.slowness },
    { name: "rate", title: "steps per second", show: figure, value: n => n.steps_per_s },
    { name: "gpu", title: "GPU use", range: [0, 100], show: x => `${x.toFixed(0)} %`,
      value: n => gpuValue(n, "percent") },
    { name: "memory", title: "GPU memory", range: [0, 1], show: x => percent(x, 0), value: gpuShare },
    { name: "heat", title: "temperature", show: x => `${x.toFixed(0)} °C`, value: n => gpuValue(n, "celsius") },
    { name: "power", title: "GPU power", show: x => `${count(x)} W`, value: n => gpuValue(n, "watts") },
    { name: "step", title: "step", show: count, value: n => n.step },
    { name: "loss", title: "loss", show: figure, value: n => n.loss },
    { name: "heard", title: "last heartbeat", show: x => `${age(x)} ago`, value: n => n.heard_ms_ago },
  ];

  /* -- nodes: the map ------------------------------------------------------------------------- */

  const LEVELS = 8, MAP_FROM = 49;

  /* Round ends, so that colours change with their node and not with others. */
  function measureRange(measure, views) {
    const values = views.map(v => measure.value(v.node)).filter(isNumber);
    if (measure.range || !values.length) return measure.range || [0, 1];
    const low = least(values), high = most(values);
    const each = roundUp(Math.max((high - low) / LEVELS, Math.abs(high) * 1e-3, 1e-12));
    return [Math.floor(low / each) * each, Math.max(Math.ceil(high / each), Math.floor(low / each) + 1) * each];
  }

  function cellLook(measure, range, view) {
    if (measure.name === "state") return view.sign.look;
    const value = measure.value(view.node);
    if (!isNumber(value)) return "rx";
    return `r${within(Math.floor(LEVELS * (value - range[0]) / (range[1] - range[0])), 0, LEVELS - 1)}`;
  }

  const pickedKey = () => chosen.over === null ? chosen.node : chosen.over;

  const cells = new Map(); /* a cell that is described as before is not looked into */

  function mapCell(view, measure, range, isStop) {
    const look = cellLook(measure, range, view), { key, sign, node } = view;
    const text = sign === SIGN.running && measure.name !== "state" ? "" : sign.sign;
    const same = [key, look, text, sign.name, isStop, key === chosen.node].join();
    if (!cells.has(same))
      cells.set(same, h("div", {
        key, role: "option", class: `cell ${look}`, "data-at": key, tabindex: isStop ? 0 : -1,
        onfocus: pickCell, "aria-selected": String(key === chosen.node), "aria-label": `${node.host}, ${sign.word}`,
      }, text));
    return cells.get(same);
  }

  const cellAt = event => event.target.closest && event.target.closest("[data-at]");

  function pick(name, value) {
    if (chosen[name] === value) return;
    chosen[name] = value;
    draw();
  }

  function pickCell(event) {
    if (cellAt(event)) pick("node", cellAt(event).dataset.at);
  }

  function onMapKey(event) {
    const cell = cellAt(event), cells = cell && [...cell.parentElement.children];
    const columns = cell && getComputedStyle(cell.parentElement).gridTemplateColumns.split(" ").length;
    const at = cell ? cells.indexOf(cell) : -1;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0,
                    End: cell && cells.length - 1 };
    if (!cell || !(event.key in moves)) return;
    event.preventDefault();
    const next = cells[moves[event.key]];
    if (next) next.focus();
  }

  function nodeMap(views, measure) {
    const range = measure.value ? measureRange(measure, views) : null;
    const swatch = (_, i) => h("span", { class: `swatch r${i}`, "aria-hidden": "true" });
    const stop = (views.find(v => v.key === chosen.node) || views[0] || {}).key;
    const onOver = event => pick("over", cellAt(event) ? cellAt(event).dataset.at : null);
    return h("div", { class: "heat" },
      h("div", { class: `map ${views.length > 400 ? "small" : ""}`, role: "listbox", "aria-label": "Map of nodes",
                 onclick: pickCell, onkeydown: onMapKey, onpointerover: onOver,
                 onpointerleave: () => pick("over", null) },
        views.map(view => mapCell(view, measure, range, view.key === stop))),
      range && h("p", { class: "ramp" }, measure.show(range[0]), Array.from({ length: LEVELS }, swatch),
                 measure.show(range[1]), extremes(measure, views)));
  }

  /* Who has the least and the most. */
  function extremes(measure, views) {
    const known = views.filter(v => isNumber(measure.value(v.node)))
      .sort((a, b) => measure.value(a.node) - measure.value(b.node));
    const words = (name, view) => `${name} ${measure.show(measure.value(view.node))} on ${view.node.host}`;
    return known.length > 0 && h("span", { class: "extremes" }, `${words("least", known[0])} · median ` +
      `${measure.show(measure.value(known[known.length >> 1].node))} · ${words("most", known[known.length - 1])}`);
  }

  /* -- nodes: one of them --------------------------------------------------------------------- */

  const RANK_LINKS = 16;

  function ranksOf(node, isEach) {
    const { first_rank: first, workers } = node;
    if (!isNumber(first) || !workers) return "–";
    if (isEach && workers <= RANK_LINKS && seesOutput())
      return Array.from({ length: workers }, (_, i) => [i > 0 && " ", rankLink(first + i)]);
    return [rankLink(first), workers > 1 && `-${first + workers - 1}`];
  }

  function heardText(view) {
    const { node, sign } = view, heard = node.heard_ms_ago;
    const isSilent = sign === SIGN.lost || heard >= SILENT_MS;
    return isSilent && sign !== SIGN.finished && heard < now() ? `heard ${age(heard)} ago` : "";
  }

  const memoryText = gpus => `${count(gpus.used_mib / GIB)} of ${count(gpus.total_mib / GIB)} GiB`;

  function nodeFacts(view) {
    const { node, lag } = view, g = node.gpus;
    return [
      ["ranks", ranksOf(node, true)],
      ["step", node.step && [count(node.step), lag > 0 && small(` ${count(lag)} behind`)]],
      ["rate", isNumber(node.steps_per_s) && `${figure(node.steps_per_s)} steps/s`],
      ["per step", isNumber(node.slowness) && `${node.slowness.toFixed(2)} × the others' time`],
      ["loss", isNumber(node.loss) && figure(node.loss)],
      ["GPUs", g && `${g.count} · ${isNumber(g.percent) ? `${g.percent} %` : "–"} · ${memoryText(g)}`],
      ["heat", g && `${g.celsius} °C · ${count(g.watts)} W`],
      ["last XID", node.xid && `${node.xid}${node.xids > 1 ? ` of ${count(node.xids)}` : ""}`],
      ["heard", isNumber(node.heard_ms_ago) && `${age(node.heard_ms_ago)} ago`],
      ["checkpoint", isNumber(node.checkpoint_age_ms) && !page.isReport && `${age(node.checkpoint_age_ms)} ago`],
      ["address", node.address], ["crun", node.pid && `pid ${node.pid}`], ["contained by", node.containment],
      ["note", node.note],
    ].filter(([, text]) => text);
  }

  function nodePanel(view, heading = "h3") {
    return view && h("div", { class: "panel" },
      h(heading, null, view.node.host || "–"),
      h("p", null, badge(view.sign.look, view.sign.sign), ` ${view.sign.word}`,
        heardText(view) && small(` ${heardText(view)}`)),
      h("dl", { class: "pairs" }, nodeFacts(view).map(([term, text]) =>
        h("div", { key: term }, h("dt", null, term), h("dd", null, text)))));
  }

  /* -- nodes: the table ----------------------------------------------------------------------- */

  function nodeStateCell(view) {
    return h("td", null, badge(view.sign.look, view.sign.sign),
             ` ${view.node.state || "unknown"}`, view.sign === SIGN.lost && ", lost",
             heardText(view) && small(` ${heardText(view)}`));
  }

  const NODE_COLUMNS = [
    { name: "Node", value: v => v.name, cell: v => h("th", { scope: "row" }, v.node.host || "–") },
    { name: "State", value: v => v.sign.worst, cell: nodeStateCell },
    { name: "Ranks", value: v => v.node.first_rank,
      cell: v => h("td", null, ranksOf(v.node, page.job.nodes.length <= 32)) },
    { name: "Step", isNumber: true, value: v => v.node.step,
      cell: v => numberCell([count(v.node.step), v.lag > 0 && small(` ${count(v.lag)} behind`)]) },
    { name: "Steps/s", isNumber: true, value: v => v.node.steps_per_s,
      cell: v => numberCell(figure(v.node.steps_per_s)) },
    { name: "Time per step", isNumber: true, value: v => v.node.slowness,
      cell: v => numberCell(isNumber(v.node.slowness) ? `${v.node.slowness.toFixed(2)} ×` : "–") },
    { name: "GPU", isNumber: true, isGpu: true, value: v => gpuValue(v.node, "percent"), cell: v => {
      const use = gpuValue(v.node, "percent");
      return meter(use / 100, isNumber(use) ? `${use.toFixed(0)} %` : "–");
    } },
    { name: "Memory", isNumber: true, isGpu: true, value: v => gpuShare(v.node), cell: v => meter(gpuShare(v.node),
      v.node.gpus ? memoryText(v.node.gpus) : "–") },
    { name: "Heat", isNumber: true, isGpu: true, value: v => gpuValue(v.node, "celsius"),
      cell: v => numberCell(v.node.gpus ? `${v.node.gpus.celsius} °C` : "–") },
    { name: "Power", isNumber: true, isGpu: true, value: v => gpuValue(v.node, "watts"),
      cell: v => numberCell(v.node.gpus ? `${count(v.node.gpus.watts)} W` : "–") },
    { name: "Last XID", isNumber: true, isGpu: true, value: v => v.node.xid || NaN,
      cell: v => numberCell([v.node.xid ? String(v.node.xid) : "–",
                             v.node.xids > 1 && small(` of ${count(v.node.xids)}`)]) },
    { name: "Note", value: v => v.node.note, cell: v => h("td", null, v.node.note) },
  ];

  const worstFirst = views => views.slice().sort((a, b) => a.sign.worst - b.sign.worst);

  function nodeTable(views) {
    const hasGpus = views.some(v => v.node.gpus), columns = NODE_COLUMNS.filter(c => hasGpus || !c.isGpu);
    const shown = page.isReport ? Infinity : chosen.rows + (views.length < MAP_FROM ? MAP_FROM : 20);
    const rows = sortBy(worstFirst(views), columns, chosen.nodeOrder).slice(0, shown);
    const more = views.length - rows.length;
    return [
      scrolling("Table of nodes", h("table", { class: "nodes wide" },
        h("thead", null, h("tr", null, headCells(columns, chosen.nodeOrder))),
        h("tbody", null, rows.map(view => h("tr", { key: view.key }, columns.map(column => column.cell(view))))))),
      more > 0 && h("button", { type: "button", class: "button", onclick: () => { chosen.rows += 200; draw(); } },
                    `Show 200 more of ${plural(views.length, "node")}`),
    ];
  }

  /* -- nodes: all of them --------------------------------------------------------------------- */

  function isFound(view) {
    const text = chosen.search.trim().toLowerCase(), rank = Number(text.replace(/^rank\s*/, ""));
    const { node, sign } = view;
    if (chosen.signs.size && !chosen.signs.has(sign.name)) return false;
    if (!text) return true;
    return includesText([node.host, node.address, node.note, sign.word, node.state], text) ||
      (isNumber(rank) && hasRank(node, rank));
  }

  function signChips(views) {
    const numbers = new Map();
    for (const view of views) numbers.set(view.sign, (numbers.get(view.sign) || 0) + 1);
    return h("div", { class: "chips", role: "group", "aria-label": "States of nodes" },
             SIGNS.filter(sign => numbers.has(sign) || chosen.signs.has(sign.name)).map(sign =>
               chip(chosen.signs.has(sign.name), () => { toggle(chosen.signs, sign.name); draw(); },
                    badge(sign.look, sign.sign),
                    ` ${count(numbers.get(sign) || 0)} ${sign.word}`)));
  }

  function measureSelect(views) {
    const useful = MEASURES.filter(m => !m.value || views.some(v => isNumber(m.value(v.node))));
    return h("label", { key: "measure" }, "Colour by ",
             h("select", { onchange: event => pick("measure", event.target.value) },
               useful.map(m => h("option", { key: m.name, value: m.name }, m.title))));
  }

  function rankForm() {
    const onsubmit = event => {
      event.preventDefault();
      location.assign(pathOf(page.job.job, "ranks", event.target.querySelector("input").value));
    };

    return seesOutput() && h("form", { key: "go", onsubmit }, h("label", null, "Output of rank ",
      h("input", { type: "number", min: 0, required: true })), " ", h("button", { class: "button" }, "Show"));
  }

  function nodesSection(all) {
    const views = viewNodes(all), found = views.filter(isFound), hasMap = views.length >= MAP_FROM;
    const measure = MEASURES.find(m => m.name === chosen.measure);
    if (!views.length) return null;
    return section("nodes", plural(views.length, "node"),
      h("div", { class: "bar-of-tools" }, signChips(views),
        views.length > 4 && searchInput("Search nodes", "search"), hasMap && measureSelect(views), rankForm()),
      found.length < views.length && h("p", { class: "note" }, `${plural(found.length, "node")} found`),
      hasMap && h("div", { class: "map-and-panel" }, nodeMap(found, measure),
                  nodePanel(views.find(v => v.key === pickedKey()) || worstFirst(found)[0])),
      nodeTable(found));
  }

  /* -- commands ------------------------------------------------------------------------------- */

  /* As a word of a shell, so that it can be pasted whatever it contains. */
  const shellWord = word =>
    /^[A-Za-z0-9_./:@+][A-Za-z0-9_./:@+-]*$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;

  const COMMANDS = [
    { verb: "logs -f", rest: rank => rank, purpose: "output of a rank, as it comes", isLive: true },
    { verb: "logs", rest: rank => rank, purpose: "output of a rank", isLive: false },
    { verb: "stacks", purpose: "what the ranks do now", isLive: true },
    { verb: "drain", rest: () => "NODE", purpose: "let a node leave in good order", isLive: true },
    { verb: "stop", purpose: "end the job on all its nodes", isLive: true },
    { verb: "report", rest: () => "-o report.html", purpose: "this page as one file" },
    { verb: "page", purpose: "a link to this page with output, stacks and failures", isHidden: () => seesOutput() },
  ];

  function commandsSection(job) {
    const rank = job.failure && isNumber(job.failure.rank) ? job.failure.rank : 0;
    const rows = COMMANDS.filter(c => c.isLive !== isOver(job) && !(c.isHidden && c.isHidden()));
    return section("commands", "In a terminal", h("ul", { class: "lines" }, rows.map(({ verb, rest, purpose }) => {
      const text = ["crunctl", page.viewer.server, verb, shellWord(job.name || job.job), rest && rest(rank)]
        .filter(word => word !== undefined && word !== null && word !== "").join(" ");
      return h("li", { key: verb }, h("code", null, text), copyButton(text), h("span", null, purpose));
    })));
  }

  /* -- the page of a job ------------------------------------------------------------------------ */

  function jobPage(job) {
    const nodes = job.nodes || [];
    return [
      headSection(job), failureSection(job), figuresSection(job, nodes), curvesSection(job),
      h("div", { key: "pair", class: "pair" }, timeSection(job), eventsSection(job)),
      nodesSection(nodes), epochsSection(job), !page.isReport && commandsSection(job),
    ];
  }

  /* -- the list of jobs --------------------------------------------------------------------------- */

  function progressCell(job) {
    if (!job.steps) return h("td", null, job.step ? `step ${count(job.step)}` : "–");
    const share = (job.step || 0) / job.steps;
    return h("td", { class: "progress-cell" }, progressBar(share), h("span", null, percent(share)),
             small(` ${count(job.step || 0)} of ${count(job.steps)}`));
  }

  const JOB_COLUMNS = [
    { name: "Job", value: nameOf, cell: job => h("th", { scope: "row" },
      h("a", { href: pathOf(job.job) }, nameOf(job)),
      job.program && job.program !== job.name && small(` ${job.program}`)) },
    { name: "State", value: job => stateOf(job).word, cell: job => h("td", null, statePill(stateOf(job))) },
    { name: "Progress", isNumber: true, isLeft: true, value: job => job.steps ? job.step / job.steps : NaN,
      cell: progressCell },
    { name: "Since", isNumber: true, value: stateBegan,
      cell: job => numberCell(isTime(stateBegan(job)) ? ago(stateBegan(job)) : "–") },
    { name: "Ran for", isNumber: true, value: ranFor,
      cell: job => numberCell(isNumber(ranFor(job)) ? duration(ranFor(job)) : "–") },
    { name: "Nodes", isNumber: true, value: job => job.node_count,
      cell: job => numberCell(count(job.node_count || NaN)) },
    { name: "Workers", isNumber: true, value: job => job.worker_count,
      cell: job => numberCell(count(job.worker_count || NaN)) },
    { name: "Restarts", isNumber: true, value: job => job.restarts, cell: job => numberCell(count(job.restarts)) },
    { name: "Goodput", isNumber: true, value: job => job.goodput,
      cell: job => numberCell(isNumber(job.goodput) ? percent(job.goodput) : "–") },
    { name: "What happened", value: job => job.text, cell: job => h("td", { class: "text" }, small(job.text)) },
  ];

  function ranFor(job) {
    return Math.max(0, (job.ended_ms || now()) - job.started_ms);
  }

  function stateChips(jobs) {
    const states = new Map();
    for (const job of jobs) {
      const state = stateOf(job), row = states.get(state.word) || { state, number: 0 };
      row.number++;
      states.set(state.word, row);
    }
    const chipOf = ({ state: { word, sign, class: look }, number }) =>
      chip(chosen.states.has(word), () => { toggle(chosen.states, word); draw(); },
           badge(look, sign), ` ${count(number)} ${word}`);
    return h("div", { class: "chips", role: "group", "aria-label": "States of jobs" },
             [...states.values()].map(chipOf));
  }

  function isJobFound(job) {
    const text = chosen.filter.trim().toLowerCase();
    return (!chosen.states.size || chosen.states.has(stateOf(job).word)) &&
      includesText([job.name, job.job, job.program, job.text, stateOf(job).word], text);
  }

  function listPage(jobs) {
    const found = sortBy(jobs.filter(isJobFound), JOB_COLUMNS, chosen.jobOrder);
    if (!jobs.length)
      return [h("h1", null, "Jobs"), h("section", { id: "list", "aria-label": "No jobs" },
        h("p", null, "There are no jobs. They are here once they have started: ",
          h("code", null, "crun train.py")))];
    return [h("h1", null, "Jobs"), h("section", { id: "list", "aria-label": "Jobs" },
      h("div", { class: "bar-of-tools" }, stateChips(jobs), searchInput("Filter jobs", "filter"),
        found.length < jobs.length &&
          h("span", { class: "note" }, `${count(found.length)} of ${plural(jobs.length, "job")}`)),
      scrolling("Table of jobs", h("table", { class: "list wide" },
        h("thead", null, h("tr", null, headCells(JOB_COLUMNS, chosen.jobOrder))),
        h("tbody", null, found.map(job =>
          h("tr", { key: job.instance + job.job }, JOB_COLUMNS.map(column => column.cell(job))))))))];
  }

  /* -- the page of a rank --------------------------------------------------------------------------- */

  const OUTPUT_EVERY = 3 * SECOND, OUTPUT_LINES = 200;
  const TO_ASK_INTERRUPTS = "To ask interrupts the rank for a moment.";
  const IS_OVER = "The job has ended. What a rank that failed said last is on the job's page.";
  const ONLY_ITS_USER = "The output of the workers is for their user: crunctl page prints a link.";

  function rankText(id, title, note, text, more) {
    return section(id, title, note && h("p", null, note), !note && !text && h("p", { class: "note" }, "Nothing yet."),
                   text && h("div", { class: "copied" }, output(title, text, `${id}-text`), copyButton(text)), more);
  }

  function neighbours(job, rank) {
    return [rank - 1, rank + 1].filter(other => other >= 0 && other < (job.worker_count || 0)).map(other =>
      [" · ", h("a", { href: pathOf(job.job, "ranks", other) }, `rank ${other}`)]);
  }

  function rankPage(job, rank) {
    const view = viewNodes(job.nodes || []).find(({ node }) => hasRank(node, rank));
    const isMissing = job.worker_count > 0 && rank >= job.worker_count;
    const isHidden = page.viewer.sees_output === false;
    const why = isHidden ? ONLY_ITS_USER : isOver(job) ? IS_OVER : page.outputNote;
    return [
      h("section", { id: "head", "aria-label": "State" },
        h("h1", null, `Rank ${rank}${view ? ` on ${view.node.host}` : ""}`),
        h("p", { class: "now" }, statePill(stateOf(job))),
        h("p", { class: "why" }, "Job ", h("a", { href: pathOf(job.job) }, nameOf(job)), neighbours(job, rank)),
        isMissing && h("p", { class: "why" },
                       `There is no rank ${rank}: the job has ${plural(job.worker_count, "worker")}.`)),
      view && h("section", { id: "node", "aria-label": "Node" }, nodePanel(view, "h2")),
      rankText("output", "Last output", why, page.output),
      seesOutput() && !isOver(job) &&
        rankText("stacks", "Stacks", page.stacksNote || (page.stacks ? "" : TO_ASK_INTERRUPTS), page.stacks,
                 h("p", null, h("button", { type: "button", class: "button", onclick: askStacks },
                                page.stacks ? "Ask again" : "Show what the rank does now"))),
      eventsSection(job, event => event.rank === rank),
    ];
  }

  /* The text of a rank, or why there is none. */
  async function askRank(what) {
    const answer = await fetch(`${page.route.api}/ranks/${page.route.rank}/${what}`), text = await answer.text();
    if ((answer.headers.get("Content-Type") || "").startsWith("text/plain")) return [text, ""];
    return ["", errorOf(text, answer.status)];
  }

  async function askStacks() {
    page.stacksNote = "Asking …";
    draw();
    [page.stacks, page.stacksNote] = await askRank("stacks").catch(() => ["", "There is no answer."]);
    draw();
  }

  const isSelected = element => !getSelection().isCollapsed && element.contains(getSelection().anchorNode);

  /* What is selected is left as it is; the end stays in sight. */
  async function askOutput() {
    const before = document.getElementById("output-text"), isRunning = page.job && !isOver(page.job);
    const isAtEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 4;
    if (isRunning && !document.hidden && !(before && isSelected(before))) {
      [page.output, page.outputNote] = await askRank(`logs?lines=${OUTPUT_LINES}`)
        .catch(() => [page.output, page.outputNote]);
      drawNow();
      const after = document.getElementById("output-text");
      if (isAtEnd && after) after.scrollTop = after.scrollHeight;
    }
    if (page.live !== "over") setTimeout(askOutput, page.job ? OUTPUT_EVERY : SECOND / 10);
  }

  /* -- drawing -------------------------------------------------------------------------------------- */

  const ICONS = { good: "#2b8a47", wait: "#c98a00", bad: "#cf222e", done: "#0969da", off: "#6e7781" };
  let drawing = 0, drawnAt = 0;

  function content() {
    const { route, job, list, error } = page;
    if (error) return [h("h1", null, "Not here"), h("p", null, error)];
    if (route.rank !== undefined && job) return rankPage(job, route.rank);
    if (job) return jobPage(job);
    return list ? listPage(list) : [h("h1", null, "crun"), h("p", { class: "note" }, "Loading …")];
  }

  const LIVE_WORDS = {
    lost: () => `Not live since ${clock(page.lostAt)}: the connection is lost. What you see is of that time.`,
    over: () => "", live: () => "", "": () => "",
  };

  function topItems() {
    const { job, route } = page, hasList = page.viewer.has_list !== false && !page.isReport;
    return [
      h("nav", { "aria-label": "Pages" }, h("b", null, "crun"),
        hasList && route.name !== "list" && h("a", { href: "/" }, "All jobs"),
        job && route.rank !== undefined && h("a", { href: pathOf(job.job) }, nameOf(job))),
      page.live === "live" && h("span", { class: "live" }, h("span", { "aria-hidden": "true" }, "● "), "live"),
      h("button", { type: "button", class: "button zone", "aria-label": `Times in ${zoneName()}: change`,
                    onclick: () => { chosen.utc = !chosen.utc; draw(); } }, zoneName()),
      h("p", { id: "live", role: "status", class: "bad", hidden: page.live !== "lost" }, LIVE_WORDS[page.live]()),
    ];
  }

  function showTitle() {
    const { job, route } = page, state = job && stateOf(job);
    const name = route.rank !== undefined ? `rank ${route.rank}` : job ? nameOf(job) : "Jobs";
    const age = page.isReport ? "report: " : page.live === "lost" ? "(not live) " : "";
    const prefix = age + (state ? `${state.word}: ` : "");
    const title = plain(`${prefix}${name} – crun`);
    const icon = document.getElementById("icon");
    const href = state ? "data:image/svg+xml," + encodeURIComponent(`<svg xmlns="${SVG}" viewBox="0 0 16 16">` +
      `<circle cx="8" cy="8" r="7" fill="${ICONS[state.class]}"/></svg>`) : "data:,";
    if (document.title !== title) document.title = title;
    if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
  }

  function footItems() {
    const { version, now_ms: written } = page.viewer;
    return [h("p", null, version ? `crun ${version}` : "crun",
              page.isReport && isTime(written) && ` · written ${clock(written)} ${zoneName()}`,
              !page.isReport && [" · ", h("a", { href: page.route.api }, "JSON")])];
  }

  /* An element that is moved in a table keeps the focus. */
  function drawNow() {
    const focused = document.activeElement;
    drawing = 0;
    drawnAt = Date.now();
    update(document.getElementById("top"), topItems().filter(isThere));
    update(document.getElementById("main"), content().filter(isThere));
    update(document.getElementById("foot"), footItems());
    showTitle();
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  function draw() {
    if (document.hidden) showTitle();
    else if (!drawing) drawing = requestAnimationFrame(drawNow);
  }

  /* -- the API -------------------------------------------------------------------------------------- */

  /* RFC 6902: add, remove and replace. */
  function applyPatch(root, operations) {
    for (const { op, path, value } of operations) {
      const keys = path.split("/").slice(1).map(key => key.replace(/~1/g, "/").replace(/~0/g, "~"));
      const last = keys.pop(), parent = keys.reduce((at, key) => at[key], root);
      if (last === undefined) return value;
      if (op === "remove" && Array.isArray(parent)) parent.splice(Number(last), 1);
      else if (op === "remove") delete parent[last];
      else if (op === "add" && last === "-") parent.push(value);
      else if (op === "add" && Array.isArray(parent)) parent.splice(Number(last), 0, value);
      else parent[last] = value;
    }
    return root;
  }

  const LIVE_RETRY = 5 * SECOND, LIVE_SILENT = 40 * SECOND, CLOCK_SET = 5 * SECOND;
  let object = null, source = null, heardAt = Date.now(), followedAt = 0, retry = 0;

  function errorOf(text, status) {
    try {
      const { error, note } = JSON.parse(text);
      return error || note || `The answer is ${status}.`;
    } catch {
      return text.trim() || `The answer is ${status}.`;
    }
  }

  /* The server's clock is that of an object which has just come; either clock may be set later. */
  function takeClock(tolerated) {
    const dated = object.jobs ? object.jobs.find(job => !isOver(job)) : object;
    if (!dated || isOver(dated) || !isTime(dated.started_ms)) return;
    const skew = dated.started_ms + dated.age_ms - Date.now();
    if (Math.abs(skew - page.skew) > tolerated) page.skew = skew;
  }

  function takeWhole(whole) {
    object = whole;
    takeClock(0);
    takeObject();
  }

  function takePatch(operations) {
    object = applyPatch(object, operations);
    takeClock(CLOCK_SET);
    takeObject();
  }

  function takeObject() {
    page.error = "";
    page.list = object.jobs || null;
    page.job = object.jobs ? null : object;
    if (page.list && page.list.length === 1 && page.viewer.has_list === false)
      location.replace(pathOf(page.list[0].job));
    draw();
  }

  function setLive(live) {
    if (page.live === live || page.live === "over") return;
    if (live === "lost") page.lostAt = heardAt + page.skew;
    page.live = live;
    draw();
  }

  /* Why there is no stream; and what there is without one. */
  async function loadOnce() {
    const answer = await fetch(page.route.api), text = await answer.text();
    if (answer.ok) {
      takeWhole(JSON.parse(text));
      page.lostAt = now();
    }
    if (!answer.ok && answer.status < 500 && !object) page.error = errorOf(text, answer.status);
    draw();
  }

  function loseStream() {
    setLive("lost");
    if (source.readyState !== EventSource.CLOSED || page.live === "over") return;
    clearTimeout(retry);
    retry = setTimeout(follow, LIVE_RETRY);
    loadOnce().catch(() => {});
  }

  function onStream(name, take) {
    source.addEventListener(name, event => {
      heardAt = Date.now();
      try {
        take(event.data);
      } catch {
        follow(); /* which begins with the whole */
      }
    });
  }

  function follow() {
    if (source) source.close();
    followedAt = Date.now();
    source = new EventSource(`${page.route.live}`);
    source.onerror = loseStream;
    onStream("whole", data => { setLive("live"); takeWhole(JSON.parse(data)); });
    onStream("patch", data => { setLive("live"); takePatch(JSON.parse(data)); });
    onStream("end", () => { setLive("over"); source.close(); });
  }

  /* Ages grow by themselves; a stream that is silent may be dead, and is if a new one is too. */
  function everySecond() {
    const time = Date.now(), quietSince = Math.max(heardAt, followedAt);
    if (time - drawnAt > 900) draw();
    if (page.live === "over") return;
    if (page.live === "live" && time - heardAt > LIVE_SILENT + LIVE_RETRY) setLive("lost");
    if (time - quietSince > LIVE_SILENT) follow();
  }

  /* -- the beginning -------------------------------------------------------------------------------- */

  function routeOf(path) {
    const [, first, job, second, rank] = path.split("/");
    if (first !== "jobs" || !job) return { name: "list", api: "/api/v1/jobs", live: "/api/v1/live" };
    const api = `/api/v1/jobs/${job}`;
    return { name: "job", api, live: `${api}/live`, rank: second === "ranks" ? Number(rank) : undefined };
  }

  const embedded = id => {
    const element = document.getElementById(id);
    return element && JSON.parse(element.textContent);
  };

  function onKey(event) {
    const input = document.querySelector("input[type=search]");
    const isTyped = event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea");
    if (event.key !== "/" || !input || isTyped) return;
    event.preventDefault();
    input.focus();
    input.select();
  }

  async function begin() {
    const job = embedded("job");
    document.addEventListener("keydown", onKey);
    document.addEventListener("visibilitychange", draw);
    if (job) {
      Object.assign(page, { isReport: true, route: { name: "job" }, viewer: embedded("viewer") || {} });
      takeWhole(job);
      drawNow();
      return;
    }
    page.route = routeOf(location.pathname);
    drawNow();
    setInterval(everySecond, SECOND);
    follow();
    page.viewer = await fetch("/api/v1/viewer").then(answer => answer.ok ? answer.json() : {}).catch(() => ({}));
    if (object) takeObject();
    if (page.route.rank !== undefined && seesOutput()) askOutput();
    window.addEventListener("pagehide", () => source.close());
    window.addEventListener("pageshow", event => {
      if (!event.persisted) return;
      page.live = ""; /* of another job of that run id, if the one before is over */
      follow();
    });
  }

  begin();
})();
