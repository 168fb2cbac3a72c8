"""Licences: every spelling comes to one, what cannot be read is refused, headers count, mixes are kept apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.corpus.config import CorpusConfig
from tasks.corpus.licence import allowed, detected, effective, family, normalised, refusal
from tasks.corpus.mix.config import MixConfig
from tests.linear import assert_linear

PERMISSIVE = ("@public-domain", "@permissive")


@pytest.mark.parametrize(
    ("written", "spdx"),
    [
        ("Apache License 2.0", "Apache-2.0"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("apache-2.0", "Apache-2.0"),
        ("The MIT License (MIT)", "MIT"),
        ("Expat", "MIT"),
        ("https://opensource.org/licenses/MIT", "MIT"),
        ("https://spdx.org/licenses/BSD-3-Clause.html", "BSD-3-Clause"),
        ("http://www.apache.org/licenses/LICENSE-2.0.txt", "Apache-2.0"),
        ("https://www.gnu.org/licenses/gpl-3.0.html", "GPL-3.0-only"),
        ("License :: OSI Approved :: MIT License", "MIT"),
        ("License :: OSI Approved :: Apache Software License", "Apache-2.0"),
        ("3-clause BSD", "BSD-3-Clause"),
        ("BSD-3-clause", "BSD-3-Clause"),
        ("New BSD License", "BSD-3-Clause"),
        ("http://creativecommons.org/licenses/by-sa/4.0/deed.en", "CC-BY-SA-4.0"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("CC BY-NC-ND 4.0", "CC-BY-NC-ND-4.0"),
        ("Creative Commons Attribution-ShareAlike 3.0 Unported", "CC-BY-SA-3.0"),
        ("GPLv3+", "GPL-3.0-or-later"),
        ("GPL-2", "GPL-2.0-only"),
        ("GPL (>= 2)", "GPL-2.0-or-later"),
        ("LGPL (>= 2.1)", "LGPL-2.1-or-later"),
        ("Apache License (>= 2)", "Apache-2.0"),
        ("MIT + file LICENSE", "MIT"),
        ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
        ("Unlicense / MIT", "Unlicense OR MIT"),
        ("GPL-2 | GPL-3 | BSD_3_clause + file LICENSE", "(GPL-2.0-only OR GPL-3.0-only) OR BSD-3-Clause"),
        ("gpl-2.0+", "GPL-2.0-or-later"),
        ("GNU General Public License v3 (GPLv3)", "GPL-3.0-only"),
        ("GNU GPL v2 or later", "GPL-2.0-or-later"),
        ("LGPL v2.1", "LGPL-2.1-only"),
        ("AGPL-3.0", "AGPL-3.0-only"),
        ("GNU Free Documentation License 1.3", "GFDL-1.3-only"),
        ("Mozilla Public License 2.0", "MPL-2.0"),
        ("Python Software Foundation License", "PSF-2.0"),
        ("mit or (apache-2.0 AND bsd-3-clause)", "MIT OR (Apache-2.0 AND BSD-3-Clause)"),
        ("GPL-2.0 WITH Classpath-exception-2.0", "GPL-2.0-only WITH Classpath-exception-2.0"),
        ("MPL 2.0", "MPL-2.0"),
        ("EPL 2.0", "EPL-2.0"),
        ("GFDL 1.3", "GFDL-1.3-only"),
        ("Perl", "Artistic-1.0-Perl OR GPL-1.0-or-later"),
        ("MIT AND Perl", "MIT AND (Artistic-1.0-Perl OR GPL-1.0-or-later)"),
        ("GPLv2+ or BSD", "GPL-2.0-or-later OR BSD-3-Clause"),
        ("LGPLv3 WITH LGPL-3.0-linking-exception", "LGPL-3.0-only WITH LGPL-3.0-linking-exception"),
    ],
)
def test_spellings(written, spdx):
    assert normalised(written) == spdx
    assert normalised(spdx) == spdx


@pytest.mark.parametrize("policy", [("*",), PERMISSIVE, ("MIT",)])
@pytest.mark.parametrize(
    ("licence", "reason"),
    [
        ("", "licence_missing"),
        ("  ", "licence_missing"),
        ("unknown", "licence_unknown"),
        ("NOASSERTION", "licence_unknown"),
        ("MIT OR", "licence_unknown"),
        ("(MIT", "licence_unknown"),
        ("MIT Apache-2.0", "licence_unknown"),
        ("MIT OR NONE", "licence_unknown"),
        ("some words of somebody", "licence_unknown"),
        ("MIT/", "licence_unknown"),
        ("MIT/something of ours", "licence_unknown"),
        ("LICENSE/COPYING", "licence_unknown"),
        ("WITH", "licence_unknown"),
        ("(" * 400 + "MIT" + ")" * 400, "licence_unknown"),
        ("MIT OR " * 10_000 + "MIT", "licence_unknown"),
    ],
)
def test_what_cannot_be_read_is_refused_by_every_policy(policy, licence, reason):
    assert refusal(licence, policy) == reason


@pytest.mark.parametrize(
    ("licence", "policy", "passes"),
    [
        ("mit", ("MIT",), True),
        ("MIT AND GPL-2.0", PERMISSIVE, False),
        ("MIT OR GPL-2.0", PERMISSIVE, True),
        ("GPL-2.0 OR MIT AND CC-BY-NC-4.0", PERMISSIVE, False),  # AND binds closer
        ("(GPL-2.0 OR MIT) AND BSD-2-Clause", PERMISSIVE, True),
        ("GPL-2.0+", ("GPL-2.0",), True),
        ("GPL-2.0-only", ("GPL-2.0-or-later",), False),
        ("Apache-2.0+", ("Apache-2.0",), True),
        ("GPL-3.0-only WITH GCC-exception-3.1", ("@weak-copyleft",), True),
        ("GPL-3.0-only", ("@weak-copyleft",), False),
        ("LicenseRef-scancode-proprietary-license", ("*",), True),
        ("CC-BY-4.0", PERMISSIVE, True),
        ("CC-BY-SA-4.0", PERMISSIVE, False),
        ("CC-BY-NC-4.0", PERMISSIVE, False),
        ("CC-BY-ND-4.0", PERMISSIVE, False),
    ],
)
def test_policies(licence, policy, passes):
    assert allowed(licence, policy) is passes


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("CC0-1.0", "public-domain"),
        ("BSD-2-Clause", "permissive"),
        ("MPL-2.0", "weak-copyleft"),
        ("LGPL-2.1+", "weak-copyleft"),
        ("GFDL-1.3", "share-alike"),
        ("GPL-3.0", "copyleft"),
        ("AGPL-3.0", "network-copyleft"),
        ("CC-BY-NC-SA-4.0", "restricted"),
        ("CC-BY-NC-4.0", "restricted"),
        ("GPL-2.0 OR MIT", "permissive"),
        ("GPL-2.0 AND MIT", "copyleft"),
        ("CC-BY-2.5", "permissive"),
        ("https://creativecommons.org/licenses/by/4.0/ AND CC-BY-NC-4.0", "unknown"),
        ("what", "unknown"),
    ],
)
def test_families(licence, expected):
    assert family(licence) == expected


GPL = (
    "/*\n * This program is free software; you can redistribute it and/or modify\n * it under the terms of the GNU "
    "General Public License as published by\n * the Free Software Foundation; either version 2 of the License, or\n"
    " * (at your option) any later version.\n */\nint main() {}\n"
)


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("// SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note\n", "GPL-2.0-only WITH Linux-syscall-note"),
        ("/* SPDX-License-Identifier: (MIT OR GPL-2.0+) */", "MIT OR GPL-2.0-or-later"),
        ("<!-- SPDX-License-Identifier: MIT -->", "MIT"),
        ("(* SPDX-License-Identifier: LGPL-2.1-only *)", "LGPL-2.1-only"),
        ("{- SPDX-License-Identifier: GPL-3.0-only -}", "GPL-3.0-only"),
        ('__licence__ = "SPDX-License-Identifier: GPL-3.0-only",', "GPL-3.0-only"),
        ("# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: GPL-3.0-only\n", "GPL-3.0-only"),
        ('found = re.search(r"SPDX-License-Identifier:\\s*(.*)", head)', None),
        ("print(f'SPDX-License-Identifier: {licence}')", None),
        (GPL, "GPL-2.0-or-later"),
        (GPL.replace("version 2", "version 3"), "GPL-3.0-or-later"),
        (GPL.replace("General", "Lesser General").replace("version 2", "version 2.1"), "LGPL-2.1-or-later"),
        ('# Licensed under the Apache License, Version 2.0 (the "License");\n', "Apache-2.0"),
        ("# Permission is hereby granted, free of charge, to any person\n", "MIT"),
        (
            "# Redistribution and use in source and binary\n# forms, with or without ... Neither the name\n",
            "BSD-3-Clause",
        ),
        ("# Redistribution and use in source and binary forms, with or\n# without modification\n", "BSD-2-Clause"),
        ("# ACME proprietary and confidential. Unauthorized copying is forbidden.\n", "LicenseRef-proprietary"),
        ("def licence(): return 1\n", None),
        ("x = 1\n" * 5000 + "# SPDX-License-Identifier: MIT", None),
    ],
)
def test_headers_of_programs(text, licence):
    assert detected(text) == licence


def test_a_header_counts_where_it_is_stricter():
    assert effective("MIT", GPL) == "GPL-2.0-or-later"
    assert effective("GPL-3.0-only", "# SPDX-License-Identifier: MIT") == "GPL-3.0-only"
    assert effective("MIT", "# SPDX-License-Identifier: Acme-1.0") == "Acme-1.0"
    assert effective("MIT", "x = 1") == "MIT"


@given(st.text(max_size=120))
def test_nothing_written_is_too_odd_and_what_was_read_reads_the_same(text):
    assert refusal(text, ("*",)) in (None, "licence_missing", "licence_unknown")
    once = normalised(text)
    assert normalised(once) == once
    detected(text)


def test_hostile_headers_take_linear_time():
    for unit in (
        "general public license ",
        "redistribution and use in source and binary forms ",
        "license /* ",
        "version 2 or ",
        "SPDX-License-Identifier: MIT (",
    ):
        assert_linear(lambda size, unit=unit: detected(unit * size), 12_500)


def test_a_policy_that_cannot_be_is_refused_by_field():
    with pytest.raises(ValidationError, match="there is no family '@free'"):
        CorpusConfig(licences=("@free",))
    with pytest.raises(ValidationError, match="there is no family '@free'"):
        MixConfig(licences=("@free",))
    assert MixConfig(licences=PERMISSIVE).licences == PERMISSIVE
