"""Print what a shell needs to complete verbs, flags and their values.

Examples:
  homing completion bash > ~/.local/share/bash-completion/completions/homing
  homing completion zsh > ~/.zfunc/_homing        # a directory of your fpath
  homing completion fish > ~/.config/fish/completions/homing.fish
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Literal

from cyclopts import App, Parameter

from homing.cli import VERBS
from homing.cli.verb import verb

app = verb("completion", __doc__)

Shell = Literal["bash", "zsh", "fish"]


@app.default
def completion(shell: Annotated[Shell, Parameter(help="the shell that shall complete")], /) -> None:
    """Print the script."""
    whole = App(name="homing", help_format="plaintext")
    for each in VERBS.values():
        whole.command(import_module(each.module).app, name=each.name)
    print(whole.generate_completion(shell=shell), end="")
