"""How a run is shown: the terminal and the page. It shows what `insight` says, and concludes nothing itself."""
