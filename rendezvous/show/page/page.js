"use strict";
(function () {
  var root = document.documentElement, body = document.body;
  var skew = Number(body.dataset.now) - Date.now();
  var mark, source, retry;

  root.className = "js";

  /* -- ages, in the words of the server ------------------------------------------ */

  function ageOf(s) {
    if (s < 120) return s + " s";
    if (s < 7200) return Math.floor(s / 60) + " min";
    if (s < 172800) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " m";
    return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
  }

  function tellAges(within) {
    var now = Date.now() + skew;

    within.querySelectorAll("time[data-ms]").forEach(function (time) {
      var age = ageOf(Math.max(0, Math.floor((now - time.dataset.ms) / 1000)));

      if (time.dataset.age !== age) time.dataset.age = age;
    });
  }

  /* -- changes: only what differs, so that focus, selection and what is open stay ---- */

  function morphAttributes(from, to) {
    var kept = { open: from.nodeName === "DETAILS", "data-age": true };

    Array.from(from.attributes).forEach(function (a) {
      if (!to.hasAttribute(a.name) && !kept[a.name]) from.removeAttribute(a.name);
    });
    Array.from(to.attributes).forEach(function (a) {
      if (from.getAttribute(a.name) !== a.value && !kept[a.name])
        from.setAttribute(a.name, a.value);
    });
  }

  function morph(from, to) {
    var next, other, after;

    if (from.nodeName !== to.nodeName) {
      from.replaceWith(to);
      return;
    }
    if (from.nodeType !== 1) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    morphAttributes(from, to);
    for (next = from.firstChild, other = to.firstChild; other; other = after) {
      after = other.nextSibling;
      if (!next) {
        from.appendChild(other);
        continue;
      }
      var following = next.nextSibling;
      morph(next, other);
      next = following;
    }
    for (; next; next = after) {
      after = next.nextSibling;
      next.remove();
    }
  }

  function showSection(id, html) {
    var old = document.getElementById(id), holder = document.createElement("template");

    holder.innerHTML = html.trim();
    var fresh = holder.content.firstElementChild;
    if (!fresh) {
      if (old) old.remove();
      return;
    }
    if (old) morph(old, fresh);
    else document.getElementById("blocks").appendChild(fresh);
    tellAges(document.getElementById(id));
  }

  function showTitle() {
    var head = document.getElementById("head");

    if (head) document.title = (mark.hidden ? "" : "(not live) ") + head.dataset.title;
  }

  /* -- the stream ----------------------------------------------------------------- */

  function setLive(isLive) {
    if (mark.hidden === isLive) return;
    if (!isLive) {
      var head = document.getElementById("head");

      mark.textContent = "Not live since " + new Date().toLocaleTimeString("en-GB") +
        (head && head.dataset.over ? ": the job has ended, as you see it here." :
          ": the connection is lost. What you see is of that time.");
    }
    mark.hidden = isLive;
    showTitle();
  }

  function follow() {
    source = new EventSource(body.dataset.live);
    source.onopen = function () { setLive(true); };
    source.onerror = function () {
      setLive(false);
      if (source.readyState === 2) {
        clearTimeout(retry);
        retry = setTimeout(follow, 5000);
      }
    };
    source.addEventListener("sections", function (event) {
      var sections = JSON.parse(event.data);

      Object.keys(sections).forEach(function (id) { showSection(id, sections[id]); });
      showTitle();
    });
  }

  /* -- copies --------------------------------------------------------------------- */

  document.addEventListener("click", function (event) {
    var button = event.target, range = document.createRange();

    if (!button.classList || !button.classList.contains("copy")) return;
    range.selectNodeContents(button.previousElementSibling);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    setTimeout(function () { button.textContent = "Copy"; }, 2000);
  });

  document.addEventListener("submit", function (event) {
    event.preventDefault();
    location.assign(event.target.dataset.go + event.target.querySelector("input").value);
  });

  /* -- the list of jobs: asked for again, and left as it is while nothing answers ---- */

  function refresh() {
    fetch(location.href).then(function (answer) {
      return answer.ok ? answer.text() : Promise.reject();
    }).then(function (text) {
      var fresh = new DOMParser().parseFromString(text, "text/html");

      ["main", "footer"].forEach(function (name) {
        morph(document.querySelector(name), fresh.querySelector(name));
      });
    }).catch(function () {});
  }

  if (body.dataset.refresh) setInterval(refresh, 1000 * body.dataset.refresh);
  if (!body.dataset.live) return;
  mark = document.getElementById("live");
  tellAges(document);
  setInterval(function () { tellAges(document); }, 1000);
  follow();
  window.addEventListener("pagehide", function () { source.close(); });
  window.addEventListener("pageshow", function (event) { if (event.persisted) follow(); });
})();
