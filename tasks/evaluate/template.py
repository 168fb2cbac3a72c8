"""The chat template that a released tokenizer carries: `model.chat` said in Jinja, for transformers and vLLM.

It numbers calls over the whole dialogue, lets the results follow and refuses what `model.dialogue` refuses, as far as
Jinja sees types. `default_system=true` gives K2's own system turn. One thing Jinja can't say: transformers reads the
rendered text again, so that a special token's name inside somebody's message becomes that token there, where
`model.chat` keeps it text.
"""

from __future__ import annotations

CHAT_TEMPLATE = r"""
{%- set ns = namespace(count=0, fresh={}, unanswered=[]) -%}
{%- if tools -%}
  {%- for tool in tools if tool is not mapping -%}
    {{- raise_exception('a tool is a dictionary') -}}
  {%- endfor -%}
  {{- '<|im_system|>tool_declare<|im_middle|>' ~ tools | tojson(separators=(',', ':')) ~ '<|im_end|>' -}}
{%- endif -%}
{%- if default_system and messages and messages[0]['role'] != 'system' -%}
  {{- '<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- set role = message['role'] -%}
  {%- if role not in ['system', 'user', 'assistant', 'tool'] -%}
    {{- raise_exception('role ' ~ role ~ ' is unknown: use system, user, assistant or tool') -}}
  {%- endif -%}
  {%- set name = message.get('name') -%}
  {%- if name is not none and name is not string -%}
    {{- raise_exception('a name is a text') -}}
  {%- endif -%}
  {%- set name = name or role -%}
  {%- set calls = message.get('tool_calls') -%}
  {%- if calls is none -%}
    {%- set calls = [] -%}
  {%- elif calls is string or calls is mapping or calls is not sequence -%}
    {{- raise_exception('tool_calls is a list of calls') -}}
  {%- elif calls and role != 'assistant' -%}
    {{- raise_exception('a message of role ' ~ role ~ ' makes calls: only the assistant does') -}}
  {%- endif -%}
  {%- set content = message.get('content') -%}
  {%- if content is none -%}
    {%- set content = '' -%}
  {%- elif content is mapping or content is not iterable -%}
    {{- raise_exception('content is a text or a list of parts') -}}
  {%- elif content is not string -%}
    {%- set said = namespace(text='') -%}
    {%- for part in content -%}
      {%- if part is not mapping -%}
        {{- raise_exception('content is a text or a list of parts') -}}
      {%- elif part.get('type') != 'text' -%}
        {{- raise_exception('a part of type ' ~ part.get('type') ~ ' cannot be read: use parts of type text') -}}
      {%- elif part.get('text') is not string -%}
        {{- raise_exception('a part of type text has no text') -}}
      {%- endif -%}
      {%- set said.text = said.text ~ part['text'] -%}
    {%- endfor -%}
    {%- set content = said.text -%}
  {%- endif -%}
  {%- if role == 'user' -%}
    {{- '<|im_user|>' ~ name ~ '<|im_middle|>' ~ content ~ '<|im_end|>' -}}
  {%- elif role == 'assistant' -%}
    {{- '<|im_assistant|>' ~ name ~ '<|im_middle|>' ~ content -}}
    {%- set turn = namespace(given=[]) -%}
    {%- for call in calls -%}
      {%- if loop.first -%}{{- '<|tool_calls_section_begin|>' -}}{%- endif -%}
      {%- set function = call.get('function') if call is mapping -%}
      {%- if function is not mapping or function.get('name') is not string -%}
        {{- raise_exception('call ' ~ loop.index0 ~ ' names no function') -}}
      {%- endif -%}
      {%- set given = call.get('id') -%}
      {%- if given is not none and given is not string -%}
        {{- raise_exception('the id of call ' ~ loop.index0 ~ ' is a text') -}}
      {%- elif given and given in turn.given -%}
        {{- raise_exception('two of its calls have the same id') -}}
      {%- endif -%}
      {%- set turn.given = turn.given + [given] -%}
      {%- set id = 'functions.' ~ function['name'] ~ ':' ~ ns.count -%}
      {%- set ns.count = ns.count + 1 -%}
      {%- set ns.fresh = dict(ns.fresh, **{given or id: id}) -%}
      {%- set ns.unanswered = ns.unanswered + [id] -%}
      {%- set arguments = function.get('arguments') -%}
      {%- if arguments is mapping -%}
        {%- set arguments = arguments | tojson -%}
      {%- elif arguments is not string -%}
        {{- raise_exception('the arguments of call ' ~ loop.index0 ~ ' are a JSON object or its text') -}}
      {%- endif -%}
      {{- '<|tool_call_begin|>' ~ id ~ '<|tool_call_argument_begin|>' ~ arguments ~ '<|tool_call_end|>' -}}
      {%- if loop.last -%}{{- '<|tool_calls_section_end|>' -}}{%- endif -%}
    {%- endfor -%}
    {{- '<|im_end|>' -}}
  {%- elif role == 'tool' -%}
    {%- set given = message.get('tool_call_id') -%}
    {%- if given is not string -%}
      {{- raise_exception("a tool's result has no tool_call_id") -}}
    {%- endif -%}
    {%- set id = ns.fresh.get(given, given) -%}
    {%- if id not in ns.unanswered -%}
      {{- raise_exception('the result of ' ~ given ~ ' answers no open call') -}}
    {%- endif -%}
    {%- set ns.unanswered = ns.unanswered | reject('equalto', id) | list -%}
    {{- '<|im_system|>' ~ name ~ '<|im_middle|>## Return of ' ~ id ~ '\n' ~ content ~ '<|im_end|>' -}}
  {%- else -%}
    {{- '<|im_system|>' ~ name ~ '<|im_middle|>' ~ content ~ '<|im_end|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}
""".strip()
