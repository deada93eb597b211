package origproto
import "github.com/meshctl/meshctl/proxy/message"
func Upgrade(h *message.Head) {}
func Restore(h *message.Head) bool { return false }
func Mark(h *message.Head) {}
func Unmark(h *message.Head) {}
func Strip(h *message.Head) {}
func Possible(h *message.Head) bool { return false }
