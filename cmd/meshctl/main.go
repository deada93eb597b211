// Command meshctl redirects a network namespace's TCP traffic and proxies it.
package main

func main() {}
