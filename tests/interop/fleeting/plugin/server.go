package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"os/exec"

	"golang.org/x/crypto/ssh"
)

// newServer lets in who has the key, with a host key of its own.
func newServer(allowed ssh.PublicKey) (*ssh.ServerConfig, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), allowed.Marshal()) {
				return nil, errors.New("another key")
			}
			return nil, nil
		},
	}
	config.AddHostKey(signer)
	return config, nil
}

// serve until the listener is closed.
func serve(listener net.Listener, config *ssh.ServerConfig) {
	for {
		plain, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer plain.Close()
			_, channels, requests, err := ssh.NewServerConn(plain, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for asked := range channels {
				if asked.ChannelType() != "session" {
					asked.Reject(ssh.UnknownChannelType, "only sessions")
					continue
				}
				if channel, requests, err := asked.Accept(); err == nil {
					go session(channel, requests)
				}
			}
		}()
	}
}

// session runs one command.
func session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for request := range requests {
		var asked struct{ Command string }
		isCommand := request.Type == "exec" && ssh.Unmarshal(request.Payload, &asked) == nil
		request.Reply(isCommand, nil)
		if !isCommand {
			continue
		}
		command := exec.Command("sh", "-c", asked.Command)
		command.Stdout, command.Stderr = channel, channel.Stderr()
		var ended *exec.ExitError
		code := 0
		if err := command.Run(); errors.As(err, &ended) {
			code = ended.ExitCode()
		} else if err != nil {
			code = 127
		}
		channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
		return
	}
}
