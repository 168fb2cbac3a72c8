"""Sources with true paraphrases, written by hand for these tests, and ways to corrupt a paraphrase."""

from __future__ import annotations

PARAPHRASES: list[tuple[str, str]] = [
    (
        "The scope of an identifier is the region of a program within which it represents a certain thing. It usually "
        "extends from the declaration to the end of the smallest enclosing block. ALGOL 60, designed in Zurich in "
        "1958, introduced this rule.",
        "Within a program an identifier stands for a given thing only in a certain region, which is called its scope. "
        "As a rule that region begins where the declaration is and ends with the smallest block around it. The rule "
        "came with ALGOL 60, which was designed in 1958 in Zurich.",
    ),
    (
        "Mercury is the smallest planet in the Solar System. It orbits the Sun every 88 days and has no moons. Its "
        "surface temperature can reach 430 °C during the day.",
        "The smallest of the planets in the Solar System is Mercury, which needs 88 days for an orbit of the Sun. It "
        "has no moons, and by day its surface may heat up to 430 °C.",
    ),
    (
        "The function `sorted(items)` returns a new list. It does not change the original. Use the `key` argument to "
        "sort by a computed value.",
        "Calling `sorted(items)` gives back a new list and leaves the original alone, so nothing in it is not as it "
        "was. To order the elements by a value that you compute, pass the `key` argument.",
    ),
    (
        "Marie Curie was born in Warsaw in 1867. She won the Nobel Prize in Physics in 1903 and the Nobel Prize in "
        "Chemistry in 1911.",
        "Born in 1867 in Warsaw, Marie Curie received two Nobel Prizes: the one in Physics came in 1903 and the one in "
        "Chemistry in 1911.",
    ),
    (
        "A prime number $p$ has exactly two divisors. By Fermat, $a^{p-1} \\equiv 1 \\pmod p$ holds whenever $p$ does "
        "not divide $a$.",
        "Exactly two numbers divide a prime $p$. Fermat's result says that, as long as $a$ is not divisible by $p$, "
        "the congruence $a^{p-1} \\equiv 1 \\pmod p$ is true.",
    ),
    (
        "The kernel never swaps locked pages. A process may lock at most 64 KB unless it runs as root.",
        "Pages that are locked are never swapped out by the kernel. Unless it is run as root, a process can lock no "
        "more than 64 KB.",
    ),
    (
        "The package is installed with `apt install nginx`. Its configuration lies in /etc/nginx/nginx.conf and the "
        "manual at https://nginx.org/en/docs/.",
        "To install the package, run `apt install nginx`. You will find its manual at https://nginx.org/en/docs/ and "
        "its configuration in /etc/nginx/nginx.conf.",
    ),
    (
        "北京是中国的首都，人口超过2100万。这座城市有3000多年的历史，是重要的文化中心。",
        "作为中国的首都，北京居住着2100万以上的人。它是一个重要的文化中心，历史长达3000多年。",
    ),
]
"""(source, paraphrase)."""

CORRUPTIONS: list[tuple[str, int, str, str, str]] = [
    ("number swap", 0, "1958", "1985", "numbers"),
    ("number swap", 1, "88 days", "78 days", "numbers"),
    ("unit swap", 1, "88 days", "88 hours", "numbers"),
    ("file name changed", 6, "nginx.conf", "nginx.config", "code"),
    ("formula changed", 4, "p-1", "p+1", "formulas"),
    ("url changed", 6, "nginx.org/en", "nginx.com/en", "code"),
    ("path changed", 6, "/etc/nginx/", "/opt/nginx/", "code"),
    ("code changed", 6, "`apt install nginx`", "`apt remove nginx`", "code"),
    ("number swap in Chinese", 7, "3000", "4000", "numbers"),
]
"""(kind, which paraphrase, what, by what, the check that must refuse it)."""
