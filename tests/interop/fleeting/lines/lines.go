// Package lines is how tests speak to a program: a line of JSON on stdin is one call, a line of JSON on stdout its answer.
package lines

import (
	"bufio"
	"encoding/json"
	"os"
)

// Serve answers calls until stdin ends. What is no call ends the program: it is the test that is wrong.
func Serve[Call any](answer func(Call) (any, error)) {
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var asked Call
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			panic(err)
		}
		result, err := answer(asked)
		told := map[string]any{"result": result}
		if err != nil {
			told["error"] = err.Error()
		}
		if err := out.Encode(told); err != nil {
			panic(err)
		}
	}
}
