// A host of fleeting plugins around upstream's library: `fleeting-host PROGRAM CONFIG`. It makes one call a line of stdin,
// such as `{"call": "increase", "n": 2}`, and answers each with a line of JSON. At the end of stdin it ends the plugin as
// upstream does. `fleeting-host PROGRAM` alone asks the plugin for TLS, which upstream's library does not, looks whether
// it is well, calls Init with empty settings, and prints the size of the answer.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/hashicorp/go-hclog"
	hplugin "github.com/hashicorp/go-plugin"
	"gitlab.com/gitlab-org/fleeting/fleeting"
	"gitlab.com/gitlab-org/fleeting/fleeting/connector"
	"gitlab.com/gitlab-org/fleeting/fleeting/provider"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"remuda/interop/fleeting/lines"
)

type request struct {
	Call      string            `json:"call"`
	N         int               `json:"n"`
	Instance  string            `json:"instance"`
	Instances []string          `json:"instances"`
	Command   string            `json:"command"`
	Settings  provider.Settings `json:"settings"`
}

func main() {
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug})
	if len(os.Args) == 2 {
		if err := callWithTLS(os.Args[1], log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	group, kill, err := start(os.Args[1], []byte(os.Args[2]), log)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lines.Serve(func(asked request) (any, error) { return call(group, log, asked) })
	kill()
}

func start(program string, config []byte, log hclog.Logger) (provider.InstanceGroup, func(), error) {
	runner, err := fleeting.RunPlugin(program, config, fleeting.WithPluginLogger(log))
	if err != nil {
		return nil, nil, err
	}
	return runner.InstanceGroup(), runner.Kill, nil
}

func call(group provider.InstanceGroup, log hclog.Logger, asked request) (any, error) {
	ctx := context.Background()
	switch asked.Call {
	case "init":
		return group.Init(ctx, log, asked.Settings)
	case "update":
		found := map[string]string{}
		err := group.Update(ctx, func(instance string, state provider.State) { found[instance] = string(state) })
		return found, err
	case "increase":
		return group.Increase(ctx, asked.N)
	case "decrease":
		return group.Decrease(ctx, asked.Instances)
	case "connect_info":
		return group.ConnectInfo(ctx, asked.Instance)
	case "heartbeat":
		return nil, group.Heartbeat(ctx, asked.Instance)
	case "run":
		return run(ctx, group, asked.Instance, asked.Command)
	case "shutdown":
		return nil, group.Shutdown(ctx)
	}
	return nil, fmt.Errorf("there is no call %s", asked.Call)
}

// run logs in to an instance as gitlab-runner does, with upstream's connector.
func run(ctx context.Context, group provider.InstanceGroup, instance, command string) (string, error) {
	info, err := group.ConnectInfo(ctx, instance)
	if err != nil {
		return "", err
	}
	var printed bytes.Buffer
	options := connector.RunOptions{Command: command, Stdout: &printed, Stderr: os.Stderr}
	err = connector.Run(ctx, info, connector.ConnectorOptions{RunOptions: options})
	return printed.String(), err
}

// connection dispenses the connection itself: upstream's client of it is not for others.
type connection struct {
	hplugin.NetRPCUnsupportedPlugin
}

func (connection) GRPCServer(*hplugin.GRPCBroker, *grpc.Server) error { return nil }

func (connection) GRPCClient(_ context.Context, _ *hplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

func callWithTLS(program string, log hclog.Logger) error {
	client := hplugin.NewClient(&hplugin.ClientConfig{
		HandshakeConfig: hplugin.HandshakeConfig{
			MagicCookieKey:   "FLEETING_INSTANCE_GROUP_PLUGIN",
			MagicCookieValue: "4c6410b1-cb78-4962-8c76-ab936d0ea908",
		},
		VersionedPlugins: map[int]hplugin.PluginSet{0: {"connection": connection{}}},
		Cmd:              exec.Command(program),
		AllowedProtocols: []hplugin.Protocol{hplugin.ProtocolGRPC},
		AutoMTLS:         true,
		Logger:           log,
	})
	defer client.Kill()
	connected, err := client.Client()
	if err != nil {
		return err
	}
	if err := connected.Ping(); err != nil {
		return err
	}
	found, err := connected.Dispense("connection")
	if err != nil {
		return err
	}
	asked, answer := &emptypb.Empty{}, &emptypb.Empty{}
	asked.ProtoReflect().SetUnknown([]byte{0x12, 2, 0x0a, 0}) // settings with an empty connector_config
	err = found.(*grpc.ClientConn).Invoke(context.Background(), "/proto.InstanceGroup/Init", asked, answer)
	if err != nil {
		return err
	}
	fmt.Println(proto.Size(answer))
	return nil
}
