// The real client of GitLab's step runner, driven from outside: a JSON object a line on stdin is one call, a line on
// stdout its answer. `step-client descriptor` prints the descriptor of the protocol that the client was built with,
// `step-client unix SOCKET` connects to a socket, `step-client command ARGV...` through a command's stdin and stdout.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"gitlab.com/gitlab-org/step-runner/pkg/api/client"
	"gitlab.com/gitlab-org/step-runner/pkg/api/client/extended"
	steps "gitlab.com/gitlab-org/step-runner/proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
)

const patience = time.Minute

type call struct {
	Method  string
	ID      string
	Offset  int64
	Stop    int // bytes of log after which the reader gives up
	Request client.RunRequest
}

type answer struct {
	Code    string          `json:"code"`
	Error   string          `json:"error,omitempty"`
	Jobs    []client.Status `json:"jobs,omitempty"`
	Log     []byte          `json:"log,omitempty"`
	Written int64           `json:"written,omitempty"`
}

// A writer that fails once it has enough, as one whose disk is full.
type reader struct {
	bytes.Buffer
	stop int
}

func (r *reader) Write(data []byte) (int, error) {
	if r.stop > 0 && r.Len()+len(data) > r.stop {
		n, _ := r.Buffer.Write(data[:r.stop-r.Len()])
		return n, errors.New("enough")
	}
	return r.Buffer.Write(data)
}

type dialer struct{ connect func(context.Context, string) (net.Conn, error) }

func (d dialer) Dial() (*grpc.ClientConn, error) {
	return grpc.Dial("passthrough:agent",
		grpc.WithContextDialer(d.connect),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// One end of a command's stdin and stdout.
func throughCommand(argv []string) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		command := exec.Command(argv[0], argv[1:]...)
		command.Stdin, command.Stdout, command.Stderr = theirs, theirs, os.Stderr
		return ours, command.Start()
	}
}

func perform(ctx context.Context, c *extended.StepRunnerClient, one call) (result answer, err error) {
	log := &reader{stop: one.Stop}
	defer func() { result.Log = log.Bytes() }()
	switch one.Method {
	case "run":
		err = c.Run(ctx, &one.Request)
	case "run and follow":
		var job client.Status
		job, err = c.RunAndFollow(ctx, &one.Request, &extended.FollowOutput{Logs: log})
		result.Jobs = []client.Status{job}
	case "logs":
		result.Written, err = c.FollowLogs(ctx, one.ID, one.Offset, log)
	case "status":
		var job client.Status
		job, err = c.Status(ctx, one.ID)
		result.Jobs = []client.Status{job}
	case "list":
		result.Jobs, err = c.ListJobs(ctx)
	case "close":
		err = c.Close(ctx, one.ID)
	default:
		err = fmt.Errorf("no method %q", one.Method)
	}
	return result, err
}

func drive(d dialer) error {
	c, err := extended.New(d)
	if err != nil {
		return err
	}
	defer c.CloseConn()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var one call
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		result, err := perform(ctx, c, one)
		cancel()
		result.Code = status.Code(err).String()
		if err != nil {
			result.Error = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	var err error
	switch os.Args[1] {
	case "descriptor":
		var data []byte
		data, err = proto.Marshal(protodesc.ToFileDescriptorProto(steps.File_step_proto))
		os.Stdout.Write(data)
	case "unix":
		err = drive(dialer{func(context.Context, string) (net.Conn, error) { return net.Dial("unix", os.Args[2]) }})
	case "command":
		err = drive(dialer{throughCommand(os.Args[2:])})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
