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
