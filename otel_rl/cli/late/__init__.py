"""Late delivery, which a person asks for: to the exporters of a run (`once`), or to others (`replay`, `give`).

The verbs `agent --once` and `export` import it. It imports the recorder.
"""
