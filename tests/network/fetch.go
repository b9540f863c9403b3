// Fetches an address, and fails where the answer is no success.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, failed := http.Get(os.Args[1])
	if failed != nil {
		fmt.Println(failed)
		os.Exit(1)
	}
	text, _ := io.ReadAll(answer.Body)
	fmt.Println(string(text))
	if answer.StatusCode >= 400 {
		os.Exit(1)
	}
}
