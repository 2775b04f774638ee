// An environment plugin for Remuda with one machine, a folder of this computer. Its messages are made from the
// protocol's descriptor at run time: PROTOCOL names a file with it, AGENT is the command of the agent.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const machine = "here"

var (
	service protoreflect.ServiceDescriptor
	folder  string
)

type message = *dynamicpb.Message

func field(of message, name string) protoreflect.FieldDescriptor {
	return of.Descriptor().Fields().ByName(protoreflect.Name(name))
}

func text(of message, name string) string { return of.Get(field(of, name)).String() }

func answer(call string, fill func(message)) message {
	made := dynamicpb.NewMessage(service.Methods().ByName(protoreflect.Name(call)).Output())
	if fill != nil {
		fill(made)
	}
	return made
}

func set(of message, name string, value any) { of.Set(field(of, name), protoreflect.ValueOf(value)) }

func place(of message) message {
	return of.Get(field(of, "place")).Message().Interface().(*dynamicpb.Message)
}

// Where a job of this place works, and the folder around it.
func folders(of message) (work, builds string) {
	builds = filepath.Join(folder, "builds")
	if own := text(of, "builds_dir"); own != "" {
		builds = own
	}
	if own := text(of, "folder"); own != "" {
		return filepath.Join(builds, own), builds
	}
	slot := of.Get(field(of, "slot")).Int()
	return filepath.Join(builds, text(of, "runner"), fmt.Sprint(slot), text(of, "project")), builds
}

func hook(call, command string, of message) (message, error) {
	work, _ := folders(of)
	shell := exec.Command("/bin/sh", "-c", command)
	shell.Env = append(os.Environ(), "REMUDA_JOB="+strings.SplitN(text(of, "key"), "-", 2)[0], "REMUDA_WORK_DIR="+work)
	printed, err := shell.CombinedOutput()
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "the command failed: %v: %s", err, printed)
	}
	return answer(call, func(m message) { set(m, "text", string(printed)) }), nil
}

func unary(call string, request message) (message, error) {
	switch call {
	case "Open":
		folder = text(request, "folder")
	case "Acquire":
		return answer(call, func(m message) { set(m, "machine", machine) }), nil
	case "Prepare":
		work, builds := folders(place(request))
		for _, path := range []string{work, work + ".tmp"} {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return nil, status.Error(codes.FailedPrecondition, err.Error())
			}
		}
		return answer(call, func(m message) {
			set(m, "work_dir", work)
			set(m, "builds_dir", builds)
			set(m, "cache_dir", filepath.Join(folder, "cache"))
		}), nil
	case "Before":
		return hook(call, text(place(request), "before_job"), place(request))
	case "After":
		return hook(call, text(place(request), "after_job"), place(request))
	case "Recover":
		jobs, _ := os.ReadDir(filepath.Join(folder, "agent", "jobs"))
		return answer(call, func(m message) {
			if len(jobs) > 0 {
				m.Mutable(field(m, "machines")).List().Append(protoreflect.ValueOfString(machine))
			}
		}), nil
	case "Usage":
		var disk syscall.Statfs_t
		if err := syscall.Statfs(folder, &disk); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		free := int64(disk.Bavail) * int64(disk.Bsize)
		return answer(call, func(m message) { set(m, "disk_free_bytes", free) }), nil
	case "CleanUp":
		work, _ := folders(place(request))
		os.RemoveAll(work + ".tmp")
	}
	return answer(call, nil), nil
}

func watch(stream grpc.ServerStream) error {
	if err := stream.RecvMsg(dynamicpb.NewMessage(service.Methods().ByName("Watch").Input())); err != nil {
		return err
	}
	if err := stream.SendMsg(answer("Watch", nil)); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func connect(stream grpc.ServerStream) error {
	receive := func() (message, error) {
		got := dynamicpb.NewMessage(service.Methods().ByName("Connect").Input())
		return got, stream.RecvMsg(got)
	}
	first, err := receive()
	if err != nil {
		return err
	}
	if name := text(first, "machine"); name != machine {
		return status.Errorf(codes.NotFound, "there is one machine, %s, and no %s", machine, name)
	}
	words := append(strings.Fields(os.Getenv("AGENT")), "proxy", "--start", "--data", filepath.Join(folder, "agent"))
	agent := exec.CommandContext(stream.Context(), words[0], words[1:]...)
	agent.Stderr = os.Stderr
	in, _ := agent.StdinPipe()
	out, _ := agent.StdoutPipe()
	if err := agent.Start(); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	go func() {
		defer in.Close()
		for {
			got, err := receive()
			if err != nil {
				return
			}
			if _, err := in.Write(got.Get(field(got, "data")).Bytes()); err != nil {
				return
			}
		}
	}()
	if err := stream.SendMsg(answer("Connect", nil)); err != nil {
		return err
	}
	buffer := make([]byte, 64*1024)
	for {
		size, err := out.Read(buffer)
		if size > 0 {
			data := append([]byte(nil), buffer[:size]...)
			if err := stream.SendMsg(answer("Connect", func(m message) { set(m, "data", data) })); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return agent.Wait()
		}
		if err != nil {
			return err
		}
	}
}

func load() error {
	raw, err := os.ReadFile(os.Getenv("PROTOCOL"))
	if err != nil {
		return err
	}
	described := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(raw, described); err != nil {
		return err
	}
	file, err := protodesc.NewFile(described, nil)
	if err != nil {
		return err
	}
	service = file.Services().ByName("Environment")
	return nil
}

func serve() error {
	if err := load(); err != nil {
		return err
	}
	described := grpc.ServiceDesc{ServiceName: string(service.FullName()), HandlerType: (*any)(nil)}
	for i := 0; i < service.Methods().Len(); i++ {
		method := service.Methods().Get(i)
		name := string(method.Name())
		if method.IsStreamingServer() {
			handler := func(_ any, stream grpc.ServerStream) error { return watch(stream) }
			if method.IsStreamingClient() {
				handler = func(_ any, stream grpc.ServerStream) error { return connect(stream) }
			}
			described.Streams = append(described.Streams, grpc.StreamDesc{
				StreamName: name, Handler: handler, ServerStreams: true, ClientStreams: method.IsStreamingClient(),
			})
			continue
		}
		described.Methods = append(described.Methods, grpc.MethodDesc{MethodName: name, Handler: func(
			_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			request := dynamicpb.NewMessage(method.Input())
			if err := decode(request); err != nil {
				return nil, err
			}
			return unary(name, request)
		}})
	}
	path := filepath.Join(os.Getenv("REMUDA_ENVIRONMENT_SOCKETS"), "go.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	server.RegisterService(&described, struct{}{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Remove(path)
		os.Exit(0)
	}()
	fmt.Printf("remuda-environment|1,2|unix|%s\n", path)
	return server.Serve(listener)
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
