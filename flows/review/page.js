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
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}

function turn(message) {
  const role = ["system", "user", "assistant", "tool"].includes(message.role) ? message.role : "other";
  const node = made("section", "", `turn ${role}`);
  node.append(made("b", message.role === "tool" ? `${message.name || "tool"} answers` : String(message.role)));
  if (message.content) {
    const text = typeof message.content === "string" ? message.content : JSON.stringify(message.content);
    node.append(made(role === "tool" ? "pre" : "p", role === "tool" ? pretty(text) : text));
  }
  for (const call of message.tool_calls || []) {
    node.append(made("pre", `${call.function.name}(${pretty(call.function.arguments)})`));
  }
  return node;
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
}

async function show(next) {
  place = Math.max(0, Math.min(listed.length - 1, next));
  const one = await ask(`api/dialogues/${place}`);
  at("turns").replaceChildren(...one.messages.map(turn));
  at("tools").replaceChildren(...one.tools.map(tool));
  if (!one.tools.length) at("tools").textContent = "none";
  const people = [["people", {accept: "accepted", reject: "rejected"}[listed[place].verdict] || "not yet"]];
  const filters = one.id ? one.filters.concat(people) : one.filters;
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
