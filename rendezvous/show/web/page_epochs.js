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

