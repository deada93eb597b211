// Package redirect puts a rules.Plan into the kernel of a network namespace,
// proves with real connections that it holds there, and becomes the proxy that
// the connections are redirected to. The way of a run:
//
//	OpenNamespace -> Listen -> Leave (watcher) -> Apply -> Verify -> Exec
//
// It neither knows what rules mean (package rules does) nor what a proxy does
// with a connection; the proxy is a program that gets its listeners by
// descriptor.
package redirect
