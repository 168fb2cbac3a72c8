"""Formulas in another notation are the same; in another sign they are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.expressions import form
from tasks.rephrase.alignment.formulas import formulas, found
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"\dfrac{a}{b}", "a/b"),
        (r"\left( x + 1 \right)^2", "(x+1)^2"),
        (r"a \cdot b", r"a \times b"),
        ("2x", r"2 \cdot x"),
        (r"x \le y", r"x \leq y"),
        ("x ≤ y", r"y \geqslant x"),
        ("x^2 + 1", "1 + x^{2}"),
        ("x²", "x^2"),
        ("x_{1}", "x₁"),
        ("a = b", "b = a"),
        (r"\sqrt{2}", "sqrt(2)"),
        (r"a \equiv b \pmod{p}", r"a \equiv b \pmod p"),
        (r"x = 2 (mod 3)", r"x = 2 \bmod 3"),
        (r"\mathrm{d}x", "dx"),
        (r"\int_0^1 x\,dx.", r"\int_{0}^{1} x dx"),
        (r"\operatorname{var}(X)", r"\text{var}(X)"),
        (r"\alpha\to\infty", "α → ∞"),
        (r"12{,}000", "12000"),
        ("x^2 - 1", "(x-1)(x+1)"),
        ("1/r^2", "r^{-2}"),
        ("V - E + F = 2", "V + F = E + 2"),
        (r"\frac{x^2}{25}+\frac{y^2}{9}=1", "9x^2+25y^2=225"),
        (r"\sin^2 x", r"(\sin x)^2"),
        (r"\sin^2 x", r"\sin(x)^2"),
        (r"\lim_{n\to\infty} (1+1/n)^n", r"\lim_{n \to \infty} \left(1 + \frac{1}{n}\right)^n"),
        (r"\binom{5}{2}(0.5)^5", r"\binom52 \cdot 0.5^5"),
        (r"\sin 30^\circ", r"\sin(30°)"),
        (r"P(A|B) = P(B|A)P(A)/P(B)", r"P(A \mid B) = \frac{P(A) P(B \mid A)}{P(B)}"),
    ],
)
def test_the_same_formula(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f(x) - f(y)", "f(x - y)"),
        (r"\sin^2 x", r"\sin x^2"),
        (r"\sin^{-1} x", r"1/\sin x"),
        (r"\lim_{n\to\infty} a_n", r"\lim_{n\to 0} a_n"),
        (r"\binom{5}{2}", r"\binom{2}{5}"),
        (r"\sin(x+y)", r"\sin x + \sin y"),
        ("dN/dt", "N/t"),
        ("x = 1", "x = -1"),
        ("10^{-12}", "10^{-13}"),
        ("x^2 + 1", "x^3 + 1"),
        ("a - b", "b - a"),
        ("a / b", "b / a"),
        ("x < y", "y < x"),
        ("x < y", r"x \le y"),
        ("x_1", "x_2"),
        (r"\frac{a}{b+c}", r"\frac{a}{b}+c"),
        (r"\sin x", r"\cos x"),
        ("a_1 + a_2 + ... + a_n", "a_1 + a_2 + ... + a_m"),
        ("-x^2", "(-x)^2"),
        ("x^{2n}", "x^2 n"),
        (r"\sum_{i=1}^n i", r"\sum_{i=0}^n i"),
        ("N = 10^{12}", "N = 10^{13}"),
        ("N < 2^{64}", "N < 3^{64}"),
        ("N = 7^{20} - a", "N = 7^{20} + b"),
        ("x^{90} + 1", "x^{90} - 1"),
        (f"p = {'9' * 400}", f"p = {'1' * 390}"),
        ("10^{308} 9 a", "10^{308} 8 b"),
    ],
)
def test_another_formula(one: str, other: str) -> None:
    assert form(one) != form(other)


@pytest.mark.parametrize(
    ("source", "rewrite", "passes"),
    [
        ("For $x > 0$ we have \\[ f(x) = x^2 + 1. \\]", "If $x>0$, then $f(x)=x^2+1$.", True),
        ("For $x > 0$ we have \\[ f(x) = x^2 + 1. \\]", "If $x>0$, then $f(x)=x^3+1$.", False),
        ("Then E = mc^2 holds.", "So we have E=mc^2 here.", True),
        ("Then E = mc^2 holds.", "So we have E=mc^3 here.", False),
        ("We get $a = b = c$.", "We get $a=b$ and $b=c$.", True),
        ("We get $a = b$ and $b = d$.", "We get $a=b$ and $b=c$.", False),
        ("With 6 CO₂ + 6 H₂O → C₆H₁₂O₆ + 6 O₂ it ends.", "At last, 6 CO₂ + 6 H₂O → C₆H₁₂O₆ + 6 O₂.", True),
        ("With 6 CO₂ + 6 H₂O → C₆H₁₂O₆ + 6 O₂ it ends.", "At last, 6 CO₂ + 6 H₂O → C₆H₁₂O₅ + 6 O₂.", False),
        ("Let $p$ be prime.", "Let $q$ be prime.", False),
        ("It takes O(n log n) steps.", "The steps are O(n) in number.", False),
        ("It is false unless $x = 0$ or $y = 0$.", "It holds only where $x$ or $y$ is zero.", True),
        ("Let a matrix be square.", "Let $A$ be an $n\\times n$ matrix.", True),
        ("It is largest for $u = 5/2$.", "It is largest at half of five.", True),
        ("It is largest for $u = 5/2$.", "It is largest for $u = 2/5$.", False),
        ("So $k(A) = |A| |B| \\ge 1$ holds.", "So $k(A) \\ge 1$, where $k(A) = |A| |B|$.", True),
        ("So $k(A) = |A| |B| \\ge 1$ holds.", "So $k(A) \\le 1$, where $k(A) = |A| |B|$.", False),
        ("There are 256³, or 16,777,216, colours.", "The colours are 256³ = 16,777,216 in number.", True),
        ("Blocks of 8 × 8 pixels.", "Blocks of eight pixels by eight.", True),
        ("Then i^2 = k^2 = ijk holds.", "So i^2 = k^2 < ijk.", False),
        ("Is P = NP?", "Is P < NP?", False),
        ("From $2x = 8$ we get $x = 4$.", "From $2y = 8$ we get $x = 4$.", False),
        ("From $2x = 8$ we get $x = 4$.", "We get $x = 4$ from $8 = 2x$.", True),
        (r"It holds for $-2 \le x \le 4$.", "On $[-2, 4]$ it holds.", True),
        (r"It holds for $-2 \le x \le 4$.", "On $(-2, 4]$ it holds.", False),
        ("The train goes at 90 km/h and/or stops.", "The train stops, or goes at 90 km/h.", True),
        (r"We find $\cos C=-0.5$.", r"This gives $\cos C=0.5$.", False),
        (r"The perimeter is $A=2\pi r=6\pi$.", r"The perimeter comes to $12\pi$.", False),
        (r"The perimeter is $A=2\pi r=6\pi$.", r"The perimeter comes to $6\pi$.", True),
        (r"So $x=2y=14$.", r"It follows that $x=28$.", False),
        (r"So $x=2y=14$.", r"It follows that $x=14$ and $y=7$.", True),
        (r"The answer is $5$.", r"We get $-5$.", False),
        (r"It changes by $-5$.", r"It falls by $5$.", True),
        (r"The limit is $\infty$.", r"It tends to $-\infty$.", False),
        ("There are $N = 10^{12}$ of them.", "Of these there are $N = 10^{13}$.", False),
        ("There are $N = 10^{12}$ of them.", "Of these there are $N=10^{12}$.", True),
        ("At most $2^{64} - k$ remain.", "What remains is at most $2^{64} + k$.", False),
        ("We have $2x = 20000$.", "We get $x = 10000$.", True),
    ],
)
def test_formulas(source: str, rewrite: str, passes: bool) -> None:
    assert formulas(Pair(source, rewrite), CONFIG).passed is passes


def test_learning_notes_may_add_formulas_but_lose_none() -> None:
    source = "Solve $x^2 = 9$, so $x = \\pm 3$."
    more = "From $x^2 = 9$ follows $x^2 - 9 = 0$, that is $(x-3)(x+3) = 0$, so $x = \\pm 3$."
    assert formulas(Pair(source, more, adds=True), CONFIG).passed
    assert not formulas(Pair(source, more.replace("\\pm 3", "\\pm 4"), adds=True), CONFIG).passed
    steps = "From $x^2 = 9$ follows $x = \\sqrt{9} = \\pm 3$."
    assert formulas(Pair("Let $x^2 = 9$, so $x = \\pm 3$.", steps, adds=True), CONFIG).passed


def test_the_verdict_says_what_became_what() -> None:
    assert formulas(Pair("So $a+b=2$.", "Thus $a-b=2$."), CONFIG).why == "a+b=2 became a-b=2"


def test_words_are_no_formulas() -> None:
    text = "A well-known pre-war I/O trick (see p. 3), km/h or and/or 10-20 of the n-gons; `a = b`, https://a.org/?b=c."
    assert found(text) == ()


@given(st.text(alphabet="ab12+-*/^_{}()[]=<>\\ $|,.frac", max_size=120))
def test_a_text_has_its_own_formulas(text: str) -> None:
    assert formulas(Pair(text, text), CONFIG).passed


@pytest.mark.parametrize(
    "bomb",
    [
        *("{" * 5000, "(" * 3000 + "x" + ")" * 3000, "x^" * 3000 + "2", "9^9^9^9^9^9", "\\frac" * 2000, "|" * 999),
        *(f"x = {'9' * 400} - {'9' * 401}", r"x = (-1)^{0.25} \cdot 2 \cdot 10^{308}"),
    ],
)
def test_no_depth_and_no_size_breaks_it(bomb: str) -> None:
    assert formulas(Pair(f"${bomb}$", f"${bomb}$"), CONFIG).passed
    assert form(bomb) == form(bomb)


def test_a_formula_without_its_exponent_is_another_one() -> None:
    source, rewrite = "Its energy is $\\frac{1}{2}mv^2$.", "It carries $\\frac12 m v$ of energy."
    assert not formulas(Pair(source, rewrite), CONFIG).passed


def test_a_number_with_its_unit_is_no_formula() -> None:
    source, rewrite = "We set h = 6.6 × 10^-34 J s.", "The constant $6.6 \\times 10^{-34}$ J s is called h."
    assert formulas(Pair(source, rewrite), CONFIG).passed
