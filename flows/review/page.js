"use strict";
// Whatever comes from a dialogue is put down as text: nothing here ever makes markup of it.
const key = location.hash.slice(1);
const at = id => document.getElementById(id);
let listed = [], place = 0, busy = false;
const judged = [];  // places of the verdicts of this page, the last one at its end

function made(kind, text = "", name = "") {
  const node = document.createElement(kind);
  node.textContent = text;
  if (name) node.className = name;
  return node;
}

async function ask(path, body) {
  const headers = {Authorization: `Bearer ${key}`};
  const answer = await fetch(path, body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers});
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function pretty(text) {
  try {
    const lines = JSON.stringify(JSON.parse(text), null, 1), line = lines.replace(/\n */g, " ");
    return line.length <= 80 ? line : lines;
  } catch { return text; }
}

function call(made_call) {
  const node = made("div", "", "call"), {name, arguments: given} = made_call.function;
  node.append(made("code", name), made("pre", pretty(given)));
  return node;
}

function failed(text) {
  try { return Boolean(JSON.parse(text).error); } catch { return false; }
}

function turn(message, number) {
  const role = ["system", "user", "assistant", "tool"].includes(message.role) ? message.role : "other";
  const node = made("section", "", `turn ${role}`), head = made("b");
  node.id = `turn-${number}`;
  head.append(made("i", String(number + 1)), role === "tool" ? `${message.name || "tool"} answers` : String(message.role));
  node.append(head);
  if (message.content) {
    const text = typeof message.content === "string" ? message.content : JSON.stringify(message.content);
    if (role === "tool" && failed(text)) node.classList.add("failed");
    node.append(made(role === "tool" ? "pre" : "p", role === "tool" ? pretty(text) : text));
  }
  node.append(...(message.tool_calls || []).map(call));
  return node;
}

// A line of the rubric: whether a program found it, what it is, and a button to the turn where.
function checked(met, what, where, remark) {
  const node = made("li", "", met ? "met" : "unmet");
  node.append(made("span", met ? "✓" : "–", "mark"), what);
  if (remark) node.append(made("small", remark));
  if (where !== null) {
    const button = made("button", `turn ${where + 1}`);
    button.addEventListener("click", () => look(where));
    node.append(button);
  }
  return node;
}

function look(where) {
  const node = at(`turn-${where}`);
  for (const other of document.querySelectorAll(".looked")) other.classList.remove("looked");
  node.classList.add("looked");
  node.scrollIntoView({block: "center"});
}

function checkpoint(one) {
  const what = made("div", "", "what"), given = Object.entries(one.arguments);
  what.append(made("code", one.tool));
  for (const [name, value] of given) what.append(made("span", `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`));
  const wanted = one.allowed === false ? "permission is missing: it must be tried" : "";
  return checked(one.met, what, one.turn, [wanted, one.error].filter(Boolean).join("; "));
}

function rubric(one) {
  at("criteria").replaceChildren(...one.criteria.map(text => made("li", text)));
  const tools = one.checkpoints.map(each => each.tool);
  at("pattern").replaceChildren(...tools.map(name => made("code", name)));
  at("checkpoints").replaceChildren(...one.checkpoints.map(checkpoint));
  at("says").replaceChildren(...one.says.map(each => checked(each.turn !== null, made("div", each.forms[0], "what"), each.turn)));
  if (!one.criteria.length) at("criteria").textContent = "none was recorded";
  if (!tools.length) at("pattern").textContent = "none";
  if (!one.says.length) at("says").textContent = "no fact in particular";
}

function tool(declared) {
  const node = made("details");
  node.append(made("summary", declared.function.name), made("div", declared.function.description || ""));
  node.append(made("pre", JSON.stringify(declared.function.parameters, null, 1)));
  return node;
}

function header() {
  const one = listed[place], count = verdict => listed.filter(each => each.verdict === verdict).length;
  at("place").textContent = `${place + 1} of ${listed.length}`;
  at("environment").textContent = one.environment;
  at("verdict").textContent = one.id ? {accept: "accepted", reject: "rejected"}[one.verdict] || "" : "refused by a rule";
  at("verdict").className = one.verdict;
  at("counts").textContent = `${count("accept")} accepted, ${count("reject")} rejected`;
  at("accept").disabled = at("reject").disabled = !one.id;
  at("undo").disabled = !judged.length;
  at("done").max = listed.filter(each => each.id).length || 1;
  at("done").value = count("accept") + count("reject");
}

async function show(next) {
  place = Math.max(0, Math.min(listed.length - 1, next));
  const one = await ask(`api/dialogues/${place}`);
  at("turns").replaceChildren(...one.messages.map(turn));
  rubric(one.rubric);
  at("tools").replaceChildren(...one.tools.map(tool));
  if (!one.tools.length) at("tools").textContent = "none";
  const people = [["people", {accept: "accepted", reject: "rejected"}[listed[place].verdict] || "not yet"]];
  const filters = [["assistant", one.player], ["user", one.persona]].filter(([, who]) => who).concat(one.filters, one.id ? people : []);
  at("filters").replaceChildren(...filters.map(([name, said]) => made("li", `${name}: ${said}`)));
  header();
  scrollTo(0, 0);
}

async function judge(verdict) {
  if (!listed[place].id) return;
  const told = await ask("api/verdicts", {id: listed[place].id, verdict});
  listed[place].verdict = told.verdict;
  judged.push(place);
  await show(place + 1);
}

async function undo() {
  if (!judged.length) return;
  const last = judged[judged.length - 1];
  const told = await ask("api/verdicts", {id: listed[last].id, verdict: "undo"});
  judged.pop();
  listed[last].verdict = told.verdict;
  await show(last);
}

const actions = {
  j: () => show(place + 1), k: () => show(place - 1), a: () => judge("accept"), r: () => judge("reject"), u: undo,
  "?": async () => at("manual").showModal(),
};

async function act(name) {
  if (busy || !listed.length || !actions[name]) return;
  busy = true;
  at("told").textContent = "";
  try { await actions[name](); } catch (error) { at("told").textContent = error.message; } finally { busy = false; }
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("manual").open) return;
  if (actions[event.key]) { event.preventDefault(); act(event.key); }
});
for (const [id, name] of [["accept", "a"], ["reject", "r"], ["undo", "u"], ["help", "?"]]) {
  at(id).addEventListener("click", event => { event.currentTarget.blur(); act(name); });
}
ask("api/dialogues").then(async found => {
  listed = found;
  if (!listed.length) throw new Error("There are no dialogues to review.");
  const open = listed.findIndex(one => one.id && !one.verdict);
  await show(Math.max(open, 0));
}).catch(error => { at("told").textContent = error.message; });
