"""The chat template that a released tokenizer carries: `model.chat` said in Jinja, for transformers and vLLM.

It numbers calls over the whole dialogue and lets the results follow, as `model.chat.numbered` does. One thing Jinja
can't say: transformers reads the rendered text again, so that a special token's name inside somebody's message becomes
that token there, where `model.chat` keeps it text.
"""

from __future__ import annotations

CHAT_TEMPLATE = r"""
{%- set compact = (',', ':') -%}
{%- set ns = namespace(count=0, fresh={}, answered=[]) -%}
{%- if tools -%}
  {{- '<|im_system|>tool_declare<|im_middle|>' ~ tools | tojson(separators=compact) ~ '<|im_end|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- set role = message['role'] -%}
  {%- set content = message.get('content') or '' -%}
  {%- if content is not string -%}
    {%- set said = namespace(text='') -%}
    {%- for part in content -%}
      {%- if part['type'] != 'text' -%}
        {{- raise_exception('a part of type ' ~ part['type'] ~ ' cannot be read: use parts of type text') -}}
      {%- endif -%}
      {%- set said.text = said.text ~ part['text'] -%}
    {%- endfor -%}
    {%- set content = said.text -%}
  {%- endif -%}
  {%- set name = message.get('name') or role -%}
  {%- if role == 'user' -%}
    {{- '<|im_user|>' ~ name ~ '<|im_middle|>' ~ content ~ '<|im_end|>' -}}
  {%- elif role == 'assistant' -%}
    {{- '<|im_assistant|>' ~ name ~ '<|im_middle|>' ~ content -}}
    {%- for call in message.get('tool_calls') or [] -%}
      {%- if loop.first -%}{{- '<|tool_calls_section_begin|>' -}}{%- endif -%}
      {%- set function = call['function'] -%}
      {%- set id = 'functions.' ~ function['name'] ~ ':' ~ ns.count -%}
      {%- set ns.count = ns.count + 1 -%}
      {%- set ns.fresh = dict(dict(ns.fresh, **{call.get('id') or id: id}), **{id: id}) -%}
      {%- set arguments = function['arguments'] -%}
      {%- if arguments is not string -%}{%- set arguments = arguments | tojson(separators=compact) -%}{%- endif -%}
      {{- '<|tool_call_begin|>' ~ id ~ '<|tool_call_argument_begin|>' ~ arguments ~ '<|tool_call_end|>' -}}
      {%- if loop.last -%}{{- '<|tool_calls_section_end|>' -}}{%- endif -%}
    {%- endfor -%}
    {{- '<|im_end|>' -}}
  {%- elif role == 'tool' -%}
    {%- set id = ns.fresh.get(message.get('tool_call_id')) -%}
    {%- if not id or id in ns.answered -%}
      {{- raise_exception('the result of ' ~ message.get('tool_call_id') ~ ' answers no open call') -}}
    {%- endif -%}
    {%- set ns.answered = ns.answered + [id] -%}
    {{- '<|im_system|>' ~ name ~ '<|im_middle|>## Return of ' ~ id ~ '\n' ~ content ~ '<|im_end|>' -}}
  {%- elif role == 'system' -%}
    {{- '<|im_system|>' ~ name ~ '<|im_middle|>' ~ content ~ '<|im_end|>' -}}
  {%- else -%}
    {{- raise_exception('role ' ~ role ~ ' is unknown: use system, user, assistant or tool') -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}
""".strip()
