"""The command line, `fbo-flower`: one module per command."""
