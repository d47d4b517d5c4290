"""`python -m tests.look.draw runs`: screenshots of real runs, as a reader sees them.

`trainer` is the program that is recorded, `runs` starts it in seven ways, and `screens` draws them: `top` in two sizes,
the report on two screens in two themes and on paper, and what `ls` and `why` print. `sheet` puts some of them next to
each other, for the docs. `for_docs` draws those of single pages.
"""
