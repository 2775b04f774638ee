// Upstream's taskscaler on a plugin: `fleeting-taskscaler PROGRAM CONFIG`, two slots a machine and no idle ones. It makes
// one call a line of stdin, such as `{"call": "acquire", "keys": ["a", "b"]}`, and answers each with a line of JSON. At the
// end of stdin it shuts down as gitlab-runner does, and machines that are left are deleted.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"gitlab.com/gitlab-org/fleeting/fleeting"
	"gitlab.com/gitlab-org/fleeting/fleeting/connector"
	"gitlab.com/gitlab-org/fleeting/fleeting/provider"
	"gitlab.com/gitlab-org/fleeting/taskscaler"
	"remuda/interop/fleeting/lines"
)

const (
	slots    = 2
	machines = 3
	idle     = time.Second
	deadline = time.Minute
)

type request struct {
	Call    string   `json:"call"`
	Keys    []string `json:"keys"`
	Command string   `json:"command"`
}

type held struct {
	Instance string `json:"instance"`
	Slot     int    `json:"slot"`
	Printed  string `json:"printed"`
}

func main() {
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug})
	runner, err := fleeting.RunPlugin(os.Args[1], []byte(os.Args[2]), fleeting.WithPluginLogger(log))
	if err != nil {
		fail(err)
	}
	defer runner.Kill()
	settings := provider.Settings{ConnectorConfig: provider.ConnectorConfig{
		Username: "root", Keepalive: 30 * time.Second, Timeout: deadline,
	}}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	scaler, err := taskscaler.New(ctx, runner.InstanceGroup(),
		taskscaler.WithLogger(log),
		taskscaler.WithInstanceGroupSettings(settings),
		taskscaler.WithCapacityPerInstance(slots),
		taskscaler.WithMaxInstances(machines),
		taskscaler.WithReservations(),
		taskscaler.WithAcquireDelay(100*time.Millisecond),
		taskscaler.WithUpdateInterval(time.Second),
		taskscaler.WithUpdateIntervalWhenExpecting(200*time.Millisecond),
		taskscaler.WithDeleteInstancesOnShutdown(),
		taskscaler.WithShutdownDeletionInterval(time.Second),
		taskscaler.WithInstanceUpFunc(func(_ taskscaler.Taskscaler, up taskscaler.UpFuncInstance) error {
			_, err := run(up.Info, "true")
			return err
		}),
		taskscaler.WithHeartbeatFunc(func(context.Context, provider.ConnectInfo) error { return nil }),
	)
	if err != nil {
		runner.Kill()
		fail(err)
	}
	if err := scaler.ConfigureSchedule(taskscaler.Schedule{IdleTime: idle}); err != nil {
		fail(err)
	}
	lines.Serve(func(asked request) (any, error) { return call(scaler, asked) })
	ending, stop := context.WithTimeout(context.Background(), deadline)
	defer stop()
	scaler.Shutdown(ending)
}

func call(scaler taskscaler.Taskscaler, asked request) (any, error) {
	switch asked.Call {
	case "reserve":
		for _, key := range asked.Keys {
			if err := scaler.Reserve(key); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil, nil
	case "acquire":
		return acquire(scaler, asked.Keys, asked.Command)
	case "release":
		for _, key := range asked.Keys {
			scaler.Release(key)
		}
		return nil, nil
	case "capacity":
		available, potential := scaler.Capacity()
		return []int{available, potential}, nil
	}
	return nil, fmt.Errorf("there is no call %s", asked.Call)
}

// acquire all at once, and run a command in each slot.
func acquire(scaler taskscaler.Taskscaler, keys []string, command string) (map[string]held, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	got, failed := map[string]held{}, error(nil)
	var mutex sync.Mutex
	var all sync.WaitGroup
	for _, key := range keys {
		all.Add(1)
		go func() {
			defer all.Done()
			one, err := hold(ctx, scaler, key, command)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				failed = fmt.Errorf("%s: %w", key, err)
			}
			got[key] = one
		}()
	}
	all.Wait()
	return got, failed
}

func hold(ctx context.Context, scaler taskscaler.Taskscaler, key, command string) (held, error) {
	acquired, err := scaler.Acquire(ctx, key)
	if err != nil {
		return held{}, err
	}
	info, err := acquired.InstanceConnectInfo(ctx)
	if err != nil {
		return held{}, err
	}
	printed, err := run(info, command)
	return held{acquired.InstanceID(), acquired.Slot(), printed}, err
}

// run logs in as gitlab-runner does, with upstream's connector.
func run(info provider.ConnectInfo, command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var printed bytes.Buffer
	options := connector.RunOptions{Command: command, Stdout: &printed, Stderr: os.Stderr}
	err := connector.Run(ctx, info, connector.ConnectorOptions{RunOptions: options})
	return printed.String(), err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
