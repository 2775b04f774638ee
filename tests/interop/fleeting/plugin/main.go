// A plugin on upstream's SDK whose machines really are logged in to: each is an ssh server of this process on a port of
// its own, which runs commands here. It forgets them when it ends.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"gitlab.com/gitlab-org/fleeting/fleeting/plugin"
	"gitlab.com/gitlab-org/fleeting/fleeting/provider"
	"golang.org/x/crypto/ssh"
)

const version = "1.0.0"

type machine struct {
	listener net.Listener
	runsFrom time.Time
}

func (m machine) state() provider.State {
	if time.Now().Before(m.runsFrom) {
		return provider.StateCreating
	}
	return provider.StateRunning
}

// group has its settings in the fields that are not private.
type group struct {
	MaxSize     int     `json:"max_size"`
	BootSeconds float64 `json:"boot_seconds"`

	connector provider.ConnectorConfig
	server    *ssh.ServerConfig
	mutex     sync.Mutex
	machines  map[string]machine
}

func (g *group) Init(_ context.Context, _ hclog.Logger, settings provider.Settings) (provider.ProviderInfo, error) {
	if g.MaxSize == 0 {
		g.MaxSize = 10
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return provider.ProviderInfo{}, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return provider.ProviderInfo{}, err
	}
	allowed, err := ssh.NewPublicKey(public)
	if err != nil {
		return provider.ProviderInfo{}, err
	}
	if g.server, err = newServer(allowed); err != nil {
		return provider.ProviderInfo{}, err
	}
	g.connector = settings.ConnectorConfig
	g.connector.Protocol, g.connector.Key, g.connector.Username = provider.ProtocolSSH, pem.EncodeToMemory(block), "ci"
	g.machines = map[string]machine{}
	return provider.ProviderInfo{ID: "interop/ports", MaxSize: g.MaxSize, Version: version}, nil
}

func (g *group) Update(_ context.Context, show func(instance string, state provider.State)) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for name, one := range g.machines {
		show(name, one.state())
	}
	return nil
}

func (g *group) Increase(_ context.Context, count int) (int, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	room := min(count, g.MaxSize-len(g.machines))
	for made := 0; made < room; made++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil && made == 0 {
			return 0, err
		}
		if err != nil {
			return made, nil
		}
		unique := make([]byte, 4)
		rand.Read(unique)
		boot := time.Duration(g.BootSeconds * float64(time.Second))
		g.machines["port-"+hex.EncodeToString(unique)] = machine{listener, time.Now().Add(boot)}
		go serve(listener, g.server)
	}
	return room, nil
}

func (g *group) Decrease(_ context.Context, instances []string) ([]string, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, name := range instances {
		if one, found := g.machines[name]; found {
			one.listener.Close()
			delete(g.machines, name)
		}
	}
	return instances, nil
}

func (g *group) ConnectInfo(_ context.Context, instance string) (provider.ConnectInfo, error) {
	one, err := g.find(instance)
	if err != nil {
		return provider.ConnectInfo{}, err
	}
	info := provider.ConnectInfo{ConnectorConfig: g.connector, ID: instance, InternalAddr: "127.0.0.1"}
	info.ProtocolPort = one.listener.Addr().(*net.TCPAddr).Port
	return info, nil
}

func (g *group) Heartbeat(_ context.Context, instance string) error {
	_, err := g.find(instance)
	return err
}

func (g *group) Shutdown(context.Context) error { return nil }

func (g *group) find(instance string) (machine, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	one, found := g.machines[instance]
	if !found {
		return machine{}, fmt.Errorf("there is no machine %s", instance)
	}
	return one, nil
}

func main() {
	plugin.Main(&group{}, plugin.VersionInfo{Name: "fleeting-plugin-ports", Version: version})
}
