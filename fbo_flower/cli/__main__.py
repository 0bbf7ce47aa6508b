"""`python -m fbo_flower.cli`: the same commands as `fbo-flower`."""

from fbo_flower.cli.main import main

if __name__ == "__main__":
    main()
