package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// loaded is what load prints, as one line of JSON.
type loaded struct {
	Kept, New int            // requests over connections that are kept, and over new ones
	Failed    int            // of both
	Failures  []string       // the first of them
	Hosts     map[string]int // who answered
	Longest   time.Duration
}

// load asks with four clients that keep their connection and two that do not, until
// its input ends.
func load(url string) error {
	var mu sync.Mutex
	l := loaded{Hosts: map[string]int{}}
	began := time.Now()
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range 6 {
		kept := i < 4
		transport := &http.Transport{DisableKeepAlives: !kept}
		client := &http.Client{Timeout: 20 * time.Second, Transport: transport}
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				start := time.Now()
				host, err := once(client, url)
				took := time.Since(start)
				mu.Lock()
				l.Longest = max(l.Longest, took)
				if kept {
					l.Kept++
				} else {
					l.New++
				}
				if err == nil {
					l.Hosts[host]++
				} else if l.Failed++; len(l.Failures) < 10 {
					l.Failures = append(l.Failures, fmt.Sprintf("after %v, kept %v, took %v: %v", start.Sub(began).Round(time.Millisecond), kept, took.Round(time.Millisecond), err))
				}
				mu.Unlock()
			}
		})
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	close(stop)
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(l)
}

func once(client *http.Client, url string) (host string, err error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s %s", resp.Status, resp.Header.Get("l5d-proxy-error"), body)
	}
	var a answer
	err = json.Unmarshal(body, &a)
	return a.Host, err
}
