package inject

import "flag"

var update = flag.Bool("update", false, "rewrite the table of docs/annotations.md")
