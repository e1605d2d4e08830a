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

