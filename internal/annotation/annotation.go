// Package annotation knows the annotations of the config.linkerd.io family:
// their names, the forms of their values, which of them are misspelt, and the
// file in which a pod sees its own. What a value leads to is not its business.
package annotation
